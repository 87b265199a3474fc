"""The Spark side: sessions, and the job that reads exactly the stored ranges into staging."""
