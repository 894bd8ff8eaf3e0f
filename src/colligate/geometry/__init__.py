"""How is a scene laid out in its vector: components, edits, removal, information, projections."""
