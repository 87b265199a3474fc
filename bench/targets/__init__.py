"""The targets: a module for each kind. All have the role that ``target`` defines."""
