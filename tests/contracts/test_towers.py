"""What every tower must do, tried on all that come with the library."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from colligate.embedders import load_model
from colligate.embedders.controls import NoControl, random_init
from colligate.embedders.embedding import embed
from colligate.embedders.inspection import check_model
from colligate.embedders.towers import Model, NetworkTower, Tower
from colligate.embedders.unreadable import UnreadableItemsError
from colligate.scenes.worlds import World, load_world
from colligate.store import Store

NETWORKS = {
    "clip": "hf",
    "siglip": "hf",
    "siglip2": "hf",
    "dinov2": "hf",
    "dinov2_with_registers": "hf",
    "sbert": "sbert",
    "open_clip": "open_clip",
}
TRAINED = {"pictures": "run", "tokens": "run"}
LOADERS = NETWORKS | TRAINED
ORACLES = ("no-binding", "object-product", "object-table", "scene-table")
ROWS = torch.tensor([7, 0, 599, 31, 7, 250])


@pytest.fixture(scope="module")
def world() -> World:
    return load_world("clevr2d")


@pytest.fixture(scope="module")
def load(tiny: Callable[[str], Path]) -> Callable[..., Model]:
    @cache
    def loaded(name: str, **options: Any) -> Model:
        return load_model(f"{LOADERS[name]}:{tiny(name)}" if name in LOADERS else f"oracle:{name}:16", **options)

    return loaded


every = pytest.mark.parametrize("name", [*NETWORKS, *TRAINED, *ORACLES])
every_network = pytest.mark.parametrize("name", list(NETWORKS))


@every
def test_one_float_vector_an_item_whatever_the_batch_and_order(
    name: str, load: Callable[..., Model], world: World
) -> None:
    for kind, tower in load(name).towers.items():
        assert isinstance(tower, Tower)
        assert tower.kind == kind
        together = embed(tower, world, rows=ROWS).vectors
        assert together.shape[0] == len(ROWS)
        assert together.dtype == torch.float32
        assert together.device.type == "cpu"
        assert torch.equal(together, embed(tower, world, rows=ROWS).vectors)
        scale = float(together.abs().max())
        one_by_one = embed(tower, world, rows=ROWS, batch_size=1).vectors
        assert (together - one_by_one).abs().max() < 1e-5 * scale  # float32 sums in another order
        backwards = embed(tower, world, rows=ROWS.flip(0)).vectors.flip(0)
        assert (together - backwards).abs().max() < 1e-5 * scale
        assert len(torch.unique(together.round(decimals=4), dim=0)) == 5  # row 7 stands there twice


@every
def test_the_fingerprint_is_json_and_the_same_when_loaded_again(
    name: str, load: Callable[..., Model], tiny: Callable[[str], Path]
) -> None:
    again = load_model(f"{LOADERS[name]}:{tiny(name)}" if name in LOADERS else f"oracle:{name}:16")
    for kind, tower in load(name).towers.items():
        first = json.dumps(tower.fingerprint, sort_keys=True)
        assert first == json.dumps(again.towers[kind].fingerprint, sort_keys=True)
        assert str(tiny("clip").parent) not in first  # a folder's place says nothing about its vectors


@every
def test_stored_vectors_come_back_bit_for_bit(
    name: str, load: Callable[..., Model], world: World, tmp_path: Path
) -> None:
    store = Store(tmp_path, rows_per_shard=4)
    for tower in load(name).towers.values():
        assert torch.equal(
            embed(tower, world, rows=ROWS, store=store).vectors, embed(tower, world, rows=ROWS, store=store).vectors
        )
    assert len(list(tmp_path.rglob("meta.json"))) == len(load(name).towers)


@every
def test_nothing_is_found_wrong(name: str, load: Callable[..., Model], world: World) -> None:
    found = check_model(load(name), world, items=8)
    assert {finding.tower for finding in found} == set(load(name).towers)
    expected = {"no-binding": {"distinct vectors"}}.get(name, set[str]())
    assert {finding.name for finding in found if finding.verdict in {"bad", "mind"}} <= expected


@pytest.mark.parametrize("name", ["clip", "siglip", "siglip2", "sbert", "open_clip"])
def test_a_caption_that_can_not_be_read_is_named_and_the_others_are_read(name: str, load: Callable[..., Model]) -> None:
    tower = load(name).towers["text"]
    assert isinstance(tower, NetworkTower)
    captions = ["a red cube", "red " * 100, "a blue sphere", "blue " * 100]
    with pytest.raises(UnreadableItemsError) as found:
        tower.embed(captions)
    assert list(found.value.reasons) == [1, 3]
    assert tower.unreadable(captions) == found.value.reasons
    assert len(tower.embed([captions[0], captions[2]])) == 2


@every_network
def test_every_choice_gives_another_fingerprint(name: str, load: Callable[..., Model]) -> None:
    model, unit, half = load(name), load(name, normalize=True), load(name, dtype="float64")
    deep = load(name, layer=1)
    for kind in model.towers:
        prints = [json.dumps(m.towers[kind].fingerprint, sort_keys=True) for m in (model, unit, half, deep)]
        assert len(set(prints)) == 4


@every_network
def test_unit_length_only_on_request(name: str, load: Callable[..., Model], world: World) -> None:
    for kind, tower in load(name).towers.items():
        raw = embed(tower, world, rows=ROWS).vectors
        unit = embed(load(name, normalize=True).towers[kind], world, rows=ROWS).vectors
        assert (raw.norm(dim=1) - 1).abs().min() > 0.1
        assert torch.allclose(unit, raw / raw.norm(dim=1, keepdim=True), atol=1e-6)


@every_network
def test_depth_holds_what_each_layer_alone_gives(name: str, load: Callable[..., Model], world: World) -> None:
    for kind, tower in load(name).towers.items():
        assert isinstance(tower, NetworkTower)
        items: Any = world.items(tower.kind, ROWS)
        depth = tower.embed_depth(items)
        assert {f"layer {i} mean" for i in range(tower.depth)} <= set(depth)
        for where, vectors in depth.items():
            _, layer, pooling = where.split()
            alone = load(name, layer=int(layer), pooling=f"{kind}={pooling}").towers[kind]
            assert torch.allclose(embed(alone, world, rows=ROWS).vectors, vectors, atol=1e-5)
        last = load(name, layer=-1, pooling=f"{kind}=mean").towers[kind]
        assert torch.equal(embed(last, world, rows=ROWS).vectors, depth[f"layer {tower.depth - 1} mean"])


@every_network
def test_tokens_average_to_the_mean(name: str, load: Callable[..., Model], world: World) -> None:
    for kind, tower in load(name).towers.items():
        assert isinstance(tower, NetworkTower)
        items: Any = world.items(tower.kind, ROWS)
        tokens, mask = tower.embed_tokens(items)
        mean = load(name, pooling=f"{kind}=mean").towers[kind]
        averaged = (tokens * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        assert torch.allclose(averaged, embed(mean, world, rows=ROWS).vectors, atol=1e-5)


@every_network
@pytest.mark.parametrize("seed", [0, 1])
def test_a_random_init_control_keeps_nothing_of_the_training(
    name: str, seed: int, load: Callable[..., Model], world: World
) -> None:
    model = load(name)
    state = torch.get_rng_state()
    control = random_init(model, seed)
    assert torch.equal(state, torch.get_rng_state())
    assert isinstance(control, Model)
    assert set(control.towers) == set(model.towers)
    for kind, tower in model.towers.items():
        fresh = control.towers[kind]
        assert isinstance(tower, NetworkTower)
        assert isinstance(fresh, NetworkTower)
        trained = dict(tower.reader.network.module.named_parameters())
        drawn = dict(fresh.reader.network.module.named_parameters())
        assert trained.keys() == drawn.keys()
        # The saved models were perturbed everywhere, so a value that is still the same was carried over.
        kept = [key for key, value in trained.items() if bool((value == drawn[key]).any())]
        assert kept == []
        ours, theirs = (embed(t, world, rows=ROWS).vectors for t in (tower, fresh))
        assert ours.shape == theirs.shape
        assert not torch.allclose(ours, theirs, atol=1e-2)
        assert tower.fingerprint != fresh.fingerprint
    networks = {id(tower.reader.network) for tower in control.towers.values() if isinstance(tower, NetworkTower)}
    assert len(networks) == 1


@every_network
def test_controls_repeat_under_a_seed_and_differ_between_seeds(
    name: str, load: Callable[..., Model], world: World
) -> None:
    first, again, other = (random_init(load(name), seed) for seed in (4, 4, 5))
    for kind in load(name).towers:
        vectors = []
        for control in (first, again, other):
            assert isinstance(control, Model)
            vectors.append(embed(control.towers[kind], world, rows=ROWS).vectors)
        assert torch.equal(vectors[0], vectors[1])
        assert not torch.allclose(vectors[0], vectors[2], atol=1e-3)


@pytest.mark.parametrize("name", ORACLES)
def test_an_oracle_says_why_it_has_no_control(name: str, load: Callable[..., Model]) -> None:
    control = random_init(load(name))
    assert isinstance(control, NoControl)
    assert "no trained weights" in control.reason
