"""How complex is the rule from concept indices to vectors, and does it carry over to objects never seen?"""
