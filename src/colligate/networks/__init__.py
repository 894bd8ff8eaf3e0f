"""Networks that training and repair share."""
