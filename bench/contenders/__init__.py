"""Who is compared: each module starts one contender. All of them know the role of ``contender``."""
