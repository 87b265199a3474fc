"""What several commands show, as values. These modules decide nothing and print nothing."""
