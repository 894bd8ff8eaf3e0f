"""Pictures by indexing are the canvas's own, pixel for pixel."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from colligate.scenes.pictures2d import Canvas
from colligate.scenes.sprites import SpriteSheet, sprite_canvas, sprite_space
from colligate.scenes.worlds import load_world


def by_canvas(canvas, scenes):
    return torch.from_numpy(np.stack([np.asarray(one) for one in canvas.draw(scenes)])).permute(0, 3, 1, 2)


@pytest.mark.parametrize(
    ("canvas", "slots"), [(sprite_canvas(), 2), (sprite_canvas(48, 3), 3), (Canvas(side=64, outline=0, radius=9.0), 2)]
)
def test_the_same_pixels_as_the_canvas(canvas, slots):
    space = sprite_space()
    scenes = space.sample_scenes(60, slots, generator=torch.Generator().manual_seed(0))
    scenes = scenes.join([scenes, space.all_scenes(slots=1)])
    assert torch.equal(SpriteSheet(canvas, space, slots).draw(scenes.objects), by_canvas(canvas, scenes))


def test_with_jitter_an_object_stands_wherever_the_canvas_may_put_it():
    space, canvas = sprite_space(4, 4), sprite_canvas(jitter=1, resize=0.2)
    sheet = SpriteSheet(canvas, space, 2)
    assert sheet.radii == (4, 5, 6)
    objects = torch.tensor([[6, -1]]).expand(2000, -1)
    found = sheet.draw(objects, torch.Generator().manual_seed(0))
    still, scene = replace(canvas, jitter=0.0, resize=0.0), space.scenes([[6, -1]])
    allowed = [
        by_canvas(replace(still, radius=float(r), positions=((8.0 + x, 16.0 + y), (24.0, 16.0))), scene)
        for r in sheet.radii for x in (-1, 0, 1) for y in (-1, 0, 1)
    ]  # fmt: skip
    kinds, counts = found.flatten(1).unique(dim=0, return_counts=True)
    expected = torch.cat(allowed).flatten(1).unique(dim=0)
    assert torch.equal(kinds, expected)
    assert counts.min() > 2000 / 27 / 2  # all are about equally frequent


def test_draws_repeat_under_a_seed():
    sheet = SpriteSheet(sprite_canvas(jitter=1), sprite_space(4, 4), 2)
    objects = sheet.space.sample_scenes(8, 2, generator=torch.Generator().manual_seed(1)).objects
    first, again, other = (sheet.draw(objects, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_every_object_looks_unlike_every_other():
    sheet = SpriteSheet(sprite_canvas(), sprite_space(), 1)
    assert len(sheet.draw(torch.arange(144)[:, None]).flatten(1).unique(dim=0)) == 144


def test_what_cant_be_drawn_is_refused():
    for canvas in (Canvas(side=32, smooth=2, radius=4.0), Canvas(side=32)):
        with pytest.raises(ValueError, match="smooth=1 and a radius"):
            SpriteSheet(canvas, sprite_space(3, 3), 2)
    with pytest.raises(ValueError, match="leave the picture"):
        SpriteSheet(replace(sprite_canvas(), jitter=5.0), sprite_space(3, 3), 2)
    with pytest.raises(ValueError, match="2 to 16 colours"):
        sprite_space(17, 3)


def test_a_world_of_sprites():
    world = load_world("sprites:5x4@48")
    assert (len(world), world.kinds) == (20**2 + 20, ("text", "picture", "scene"))
    assert world.images(torch.tensor([3]))[0].size == (48, 48)
    assert world.texts(torch.tensor([1, 400])) == ["a blue square and a blue triangle", "blue square"]
    with pytest.raises(ValueError, match="such as sprites:16x9"):
        load_world("sprites:5")
