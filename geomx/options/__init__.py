"""All options that do not belong to plugins, as dataclasses; parsing and checks of options."""
