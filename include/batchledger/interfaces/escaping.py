"""Templates of pages: everything that is put into one is escaped, and a name that it is not given is an error."""

from jinja2 import Environment, PackageLoader, StrictUndefined


def escaping_templates(package: str) -> Environment:
    """Return the templates that lie in the folder ``templates`` of a package."""
    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
