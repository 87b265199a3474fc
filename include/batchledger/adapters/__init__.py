"""Translations between the ports and what is outside: databases, brokers, engines, channels of alerts."""
