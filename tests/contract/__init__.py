"""One contract suite per port, run over the in-memory implementation and over the real one."""
