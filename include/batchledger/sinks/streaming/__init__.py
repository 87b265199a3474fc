"""Streaming: the way of rows from the tasks of Spark to the process of a step, whatever becomes of them there."""
