"""Programs that Spark starts: the stage job of spark-submit, and the daemon of its Python workers."""
