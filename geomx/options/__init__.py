"""Every option that is not a plugin's, as dataclasses, and how values are parsed and checked."""
