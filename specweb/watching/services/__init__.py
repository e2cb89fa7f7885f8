"""What changes watches, alerts and notices."""
