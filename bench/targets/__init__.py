"""Where rows go: a module for each kind of target. All of them know the role of ``target``."""
