"""What there is to bind: concepts, objects, scenes, worlds, and how they are divided."""
