"""The site: Markdown by MyST, the look by Furo, and a reference of the commands that the program writes itself."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "Batchledger"
html_title = "Batchledger"
extensions = ["commands", "llms", "myst_parser", "pipeline_keys", "sphinx_copybutton", "test_counts"]
exclude_patterns = ["extensions", "testing/calls.md", "testing/mutants.md"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
smartquotes = False
html_theme = "furo"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0f766e", "color-brand-content": "#0f766e"},
    "dark_css_variables": {"color-brand-primary": "#2dd4bf", "color-brand-content": "#2dd4bf"},
}
html_copy_source = False
html_show_sphinx = False
