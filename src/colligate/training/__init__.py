"""When does binding emerge: dual encoders trained from scratch on scenes of seen objects."""
