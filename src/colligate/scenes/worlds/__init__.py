"""Worlds: scenes together with what can be shown of them, captions and pictures.

The built-in ones are those of the paper, made by code.
"""

from colligate.scenes.worlds.built_in import WORLDS as WORLDS
from colligate.scenes.worlds.built_in import load_world as load_world
from colligate.scenes.worlds.built_in import sample_world as sample_world
from colligate.scenes.worlds.world import PARTS as PARTS
from colligate.scenes.worlds.world import Kind as Kind
from colligate.scenes.worlds.world import World as World
from colligate.scenes.worlds.writing import labels_bytes as labels_bytes
from colligate.scenes.worlds.writing import render as render
