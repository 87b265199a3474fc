"""The platform under arbitrary schedules: what may happen, in any order, and what holds after every step."""
