"""The Spark side: sessions, and the job that reads exactly the stored ranges into staging."""

from pathlib import Path

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
"""Settings of Log4j by which Spark's log has no value of a record that an expression quotes."""
