"""What several commands show, as values. No decisions here, and nothing is printed."""
