"""Pictures and captions to vectors: patches and words against plain references, members alone and together."""

import pytest
import torch

from colligate.networks.dual import DualEncoder, DualShape
from colligate.networks.encoders import EncoderShape
from colligate.networks.pictures import PictureEncoder
from colligate.networks.words import SCENES, VALUES, CaptionEncoder
from colligate.scenes.captions import CaptionTemplate
from colligate.scenes.space import ConceptSpace
from colligate.scenes.sprites import sprite_space

SPACE = sprite_space(4, 3)
PICTURES = EncoderShape(kind="pictures", width=16, heads=2, dim=8)
CAPTIONS = EncoderShape(kind="captions", width=16, heads=2, dim=8)


def test_patches_are_those_of_the_picture():
    encoder = PictureEncoder(SPACE, 2, PICTURES, [0])
    pixels = torch.randint(256, (1, 3, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    seen = []
    encoder.look.register_forward_hook(lambda _module, given, _found: seen.append(given[0]))
    encoder.encode_pixels(pixels)
    floats = pixels[0].float() / 127.5 - 1
    unfolded = torch.nn.functional.unfold(floats, 8, stride=8).transpose(1, 2)  # torch's own patches
    assert torch.allclose(seen[0][0], unfolded.reshape(3 * 16, -1))


def test_one_pixel_anywhere_changes_the_vector():
    encoder = PictureEncoder(SPACE, 2, PICTURES, [0])
    pixels = torch.full((1, 1, 3, 32, 32), 245, dtype=torch.uint8)
    blank = encoder.encode_pixels(pixels)
    for y, x in ((0, 0), (31, 31), (0, 31), (13, 20)):
        changed = pixels.clone()
        changed[..., y, x] = 0
        assert not torch.allclose(encoder.encode_pixels(changed), blank, atol=1e-5)


def test_pictures_and_values_it_cant_read():
    encoder = PictureEncoder(SPACE, 2, PICTURES, [0])
    with pytest.raises(ValueError, match="32 x 32 pixels; got 16 x 32"):
        encoder.encode_pixels(torch.zeros(1, 1, 3, 32, 16, dtype=torch.uint8))
    with pytest.raises(ValueError, match="has no picture"):
        encoder.encode_values()
    with pytest.raises(ValueError, match="tile"):
        EncoderShape(kind="pictures", side=32, patch=7)


def test_members_are_what_they_are_alone():
    model = DualEncoder(SPACE, 2, DualShape(scene=PICTURES, query=CAPTIONS), [0, 3])
    scenes = SPACE.all_scenes(slots=2)[:9].values
    together = model.scenes(scenes.expand(2, -1, -1, -1))
    texts = model.object_queries(torch.arange(12).expand(2, -1))
    for m, seed in enumerate((0, 3)):
        alone = DualEncoder(SPACE, 2, DualShape(scene=PICTURES, query=CAPTIONS), [seed])
        assert torch.allclose(alone.scenes(scenes[None])[0], together[m], atol=1e-5)
        assert torch.allclose(alone.object_queries(torch.arange(12)[None])[0], texts[m], atol=1e-5)
        assert torch.allclose(model.select(m).value_queries()[0], alone.value_queries()[0], atol=1e-5)


@pytest.mark.parametrize("wording", range(len(SCENES)))
def test_scenes_are_said_as_templates_say_them(wording):
    encoder = CaptionEncoder(SPACE, 2, CAPTIONS, [0])
    scenes = SPACE.scenes([[3, 8], [5, 5]])
    said = encoder.say(scenes.values[None], wording)[0]
    plain = CaptionTemplate("a {color} {shape}")(scenes)
    expected = [SCENES[wording].replace("{objects}", text) for text in plain]
    assert [encoder.text(words) for words in said] == expected
    assert [encoder.tokenize(text) for text in expected] == said.tolist()


def test_values_are_asked_for_one_by_one():
    encoder = CaptionEncoder(SPACE, 2, CAPTIONS, [0])
    for wording, template in enumerate(VALUES):
        said = [encoder.text(words) for words in encoder.say_values(1, wording)[0]]
        assert said == [template.replace("{value}", word) for of in SPACE.words for word in of]
    assert torch.equal(encoder.encode_values(), encoder.encode_words(encoder.say_values(1)))


def test_order_and_case_of_words():
    encoder = CaptionEncoder(SPACE, 2, CAPTIONS, [0])
    one, other = (torch.tensor([[encoder.tokenize(text)]]) for text in ("a Blue square!", "a square blue"))
    assert encoder.text(one[0, 0]) == "a blue square"
    assert not torch.allclose(encoder.encode_words(one), encoder.encode_words(other), atol=1e-4)


def test_texts_it_cant_read():
    encoder = CaptionEncoder(SPACE, 2, CAPTIONS, [0])
    with pytest.raises(ValueError, match="never learned 'teapot'"):
        encoder.tokenize("a blue teapot")
    with pytest.raises(ValueError, match="1 to 64 words"):
        encoder.tokenize("")
    with pytest.raises(ValueError, match="one word of its own; 'deer stag'"):
        CaptionEncoder(ConceptSpace(animal=["deer stag", "fox"]), 2, CAPTIONS, [0])
