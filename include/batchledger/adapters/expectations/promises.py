"""What our own expectation classes have in common: the first line of a class's text is what people read of it."""

from typing import Any

from great_expectations.core import ExpectationValidationResult
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
from great_expectations.render import LegacyRendererType, RenderedStringTemplateContent
from great_expectations.render.renderer.renderer import renderer
from great_expectations.render.renderer_configuration import RendererConfiguration


class Promising:
    """Goes before a base class of Great Expectations, and lets it tell its promise wherever it is shown."""

    @classmethod
    def promise(cls) -> str:
        """What holds when it is met, in one sentence."""
        return str(cls.__doc__).partition("\n")[0]

    @classmethod
    def _prescriptive_template(cls, renderer_configuration: RendererConfiguration[Any]) -> RendererConfiguration[Any]:
        renderer_configuration.template_str = cls.promise()
        return renderer_configuration

    @classmethod
    @renderer(renderer_type=LegacyRendererType.PRESCRIPTIVE)
    def _prescriptive_renderer(
        cls,
        configuration: ExpectationConfiguration | None = None,
        result: ExpectationValidationResult | None = None,
        runtime_configuration: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> list[RenderedStringTemplateContent]:
        """What Data Docs say of the expectation."""
        return [as_text(cls.promise())]


def as_text(text: str, *classes: str) -> RenderedStringTemplateContent:
    """Return a text as Great Expectations renders it, in these classes of the style sheet."""
    template = {"template": text.replace("$", "$$"), "styling": {"classes": list(classes)}}
    return RenderedStringTemplateContent(content_block_type="string_template", string_template=template)
