"""Captions: templates against the sentences they must give."""

import re
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colligate.scenes.captions import CaptionTemplate
from colligate.scenes.space import EMPTY, ConceptSpace, Scenes

SPACE = ConceptSpace(color=["red", "orange"], shape=["cube", "cone", "egg"])
PAIRS = SPACE.all_scenes(slots=2)


def test_the_papers_captions() -> None:
    captions = CaptionTemplate(single="{color} {shape}")(Scenes.join([PAIRS, SPACE.all_scenes(slots=1)]))
    assert captions[:3] == ["a red cube and a red cube", "a red cube and a red cone", "a red cube and a red egg"]
    assert captions[35] == "a orange egg and a orange egg"
    assert captions[36:] == ["red cube", "red cone", "red egg", "orange cube", "orange cone", "orange egg"]


def test_without_a_single_phrase_a_lone_object_is_said_like_the_others() -> None:
    assert CaptionTemplate()(SPACE.scenes([[1, EMPTY], [EMPTY, 1]])) == ["a red cone", "a red cone"]


@given(st.lists(st.integers(0, 5), min_size=2, max_size=5))
def test_any_number_of_objects_is_joined_in_order(objects: list[int]) -> None:
    (caption,) = CaptionTemplate("the {shape} in {color}", joiner=", ")(SPACE.scenes([objects]))
    said = [f"the {SPACE.words[1][o % 3]} in {SPACE.words[0][o // 3]}" for o in objects]
    assert caption == ", ".join(said)


def test_twins_are_the_other_order() -> None:
    said = CaptionTemplate()(PAIRS)
    swapped = CaptionTemplate()(PAIRS.twins())
    assert swapped == [" and ".join(reversed(caption.split(" and "))) for caption in said]


def test_a_template_for_the_whole_scene() -> None:
    template = CaptionTemplate("a photo of {1.color} {1.shape} next to {2.color} {2.shape}.")
    assert template(SPACE.scenes([[1, 5]])) == ["a photo of red cone next to orange egg."]
    backwards = CaptionTemplate("{2.color} {2.shape} right of {1.shape} ({1.color})")
    assert backwards(SPACE.scenes([[1, 5]])) == ["orange egg right of cone (red)"]
    with_singles = CaptionTemplate("{1.color} {1.shape}, {2.color} {2.shape}", single="only {color} {shape}")
    mixed = SPACE.scenes([[0, 4], [3, EMPTY], [EMPTY, 2]])
    assert with_singles(mixed) == ["red cube, orange cone", "only orange cube", "only red egg"]
    assert with_singles(SPACE.all_scenes(slots=1))[0] == "only red cube"


def test_whole_scene_and_joined_templates_agree() -> None:
    whole = CaptionTemplate("a {1.color} {1.shape} and a {2.color} {2.shape}", article=True)
    assert whole(PAIRS) == CaptionTemplate(article=True)(PAIRS)


def test_articles_follow_the_next_word_only_when_asked() -> None:
    scene = SPACE.scenes([[3, 2]])
    assert CaptionTemplate()(scene) == ["a orange cube and a red egg"]
    assert CaptionTemplate(article=True)(scene) == ["an orange cube and a red egg"]
    assert CaptionTemplate("A {shape}, {color}", article=True)(scene) == ["A cube, orange and An egg, red"]
    assert CaptionTemplate("via {shape} of {color}", article=True)(scene) == ["via cube of orange and via egg of red"]


def test_other_words_and_literal_braces() -> None:
    template = CaptionTemplate("{{a}} {color} {shape}", words={"shape": ("{color}", "50% {}", "egg\n")})
    assert template(SPACE.scenes([[0, 4]])) == ["{a} red {color} and {a} orange 50% {}"]


@given(st.lists(st.text("ab {}%\\n\u00e9\U0001f600", min_size=1, max_size=4), min_size=3, max_size=3, unique=True))
def test_words_may_hold_any_character(words: list[str]) -> None:
    said = CaptionTemplate("{color}|{shape}", words={"shape": words})(SPACE.all_scenes(slots=1))
    assert said == [f"{color}|{word}" for color in SPACE.words[0] for word in words]


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("a {color}", "never says the shape; add {shape}"),
        ("a {color} {form}", "a place {form}, but the concepts are color, shape"),
        ("{1.color} {1.shape} and {2.color}", "never says the shape; add {2.shape}"),
        ("{1.color} {1.shape} and {3.color} {3.shape}", "never says the color; add {2.color}"),
    ],
)
def test_templates_that_miss_a_concept_are_refused(template: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        CaptionTemplate(template)(PAIRS)


def test_a_single_phrase_must_say_everything_too() -> None:
    with pytest.raises(ValueError, match="never says the color"):
        CaptionTemplate(single="{shape}").check(SPACE)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"pair": "a {color"}, "unmatched brace"),
        ({"pair": "a } {color}"}, "unmatched brace"),
        ({"pair": "a {} {shape}"}, "plain {concept}"),
        ({"pair": "a {color:>9} {shape}"}, "plain {concept}"),
        ({"pair": "a {color!r} {shape}"}, "plain {concept}"),
        ({"pair": "a {1.color} {shape}"}, "numbers some slots and not others"),
        ({"single": "{1.color} {1.shape}"}, "numbers its slots"),
    ],
)
def test_malformed_templates_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CaptionTemplate(**fields)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"hue": ("a", "b")}, "No concept is called 'hue'"),
        ({"color": ("a", "b", "c")}, "words for color must be 2"),
        ({"color": "ab"}, "words for color must be 2"),
        ({"color": ("a", "a")}, "two values of color as 'a'"),
    ],
)
def test_words_that_do_not_fit_are_refused(words: dict[str, tuple[str, ...]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CaptionTemplate(words=words).check(SPACE)


def test_objects_that_would_be_said_alike_are_refused() -> None:
    space = ConceptSpace(one=["a", "ab"], two=["bc", "c"])
    with pytest.raises(ValueError, match="says 'a bc' and 'ab c' alike"):
        CaptionTemplate("{one}{two}")(space.all_scenes(slots=2))


def test_scenes_of_another_number_of_objects_are_refused_by_row() -> None:
    template = CaptionTemplate("{1.color} {1.shape} by {2.color} {2.shape}")
    with pytest.raises(ValueError, match="is for 2 objects, but scene 1 holds 1"):
        template(SPACE.scenes([[0, 1], [2, EMPTY]]))
    with pytest.raises(ValueError, match="is for 2 objects, but scene 0 holds 3"):
        template(SPACE.scenes([[0, 1, 2]]))


def test_the_description_determines_the_captions() -> None:
    templates = [
        CaptionTemplate(),
        CaptionTemplate("the {color} {shape}"),
        CaptionTemplate(joiner=" with "),
        CaptionTemplate(single="{color} {shape}"),
        CaptionTemplate(words={"color": ("R", "O")}),
        CaptionTemplate(article=True),
    ]
    scenes = Scenes.join([PAIRS, SPACE.all_scenes(slots=1)])
    assert len({repr(t.describe()) for t in templates}) == len({tuple(t(scenes)) for t in templates}) == len(templates)
    assert CaptionTemplate(**templates[4].describe())(scenes) == templates[4](scenes)  # type: ignore[arg-type]


def test_no_scenes_give_no_captions() -> None:
    none = PAIRS[torch.zeros(36, dtype=torch.bool)]
    assert CaptionTemplate()(none) == []
    assert CaptionTemplate("{1.color} {1.shape} {2.color} {2.shape}")(none) == []
