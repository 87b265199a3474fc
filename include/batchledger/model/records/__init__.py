"""What is known of records before and after they become rows. Standard library only."""
