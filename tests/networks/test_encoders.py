"""Encoders: members alone and together, no padding, what binds and what can't, attention three ways."""

from typing import Any

import pytest
import torch

from colligate.binding import ObjectProducts
from colligate.networks.dual import DualEncoder, DualShape, build_encoder
from colligate.networks.encoders import EncoderShape, ProductEncoder, within_objects
from colligate.networks.stacked import Block, attend, generators
from colligate.scenes.space import ConceptSpace

SPACE = ConceptSpace(a=4, b=3, c=2)
KINDS = (
    "object-tokens", "grouped-objects", "value-tokens", "relative-tokens", "grouped-tokens", "causal-tokens", "product",
    "bag",
)  # fmt: skip
every_kind = pytest.mark.parametrize("kind", KINDS)


def encoder(kind, *, seeds=(0,), slots=3, layers=2, near=True):
    """An encoder; what its heads add for distances, zero at the start, is drawn where `near`, for each seed."""
    shape = EncoderShape(kind=kind, width=16, layers=layers, heads=2, dim=8)
    found = build_encoder(SPACE, slots, shape, seeds).double().requires_grad_(False)
    for block in found.modules():
        if near and isinstance(block, Block) and block.near is not None:
            drawn = [torch.randn(block.near.shape[1:], generator=g, dtype=torch.float64) for g in generators(seeds)]
            block.near.copy_(0.1 * torch.stack(drawn))
    return found


def some_values(num=12, slots=3, seed=0):
    return SPACE.sample_scenes(num, slots, generator=torch.Generator().manual_seed(seed)).values


@every_kind
def test_a_member_of_a_stack_is_the_network_alone(kind):
    together = encoder(kind, seeds=(3, 5, 7))
    values = torch.stack([some_values(seed=s) for s in range(3)])
    of_objects, of_values = together.encode_queries(values[:, :, 0])
    for m, seed in enumerate((3, 5, 7)):
        alone = encoder(kind, seeds=(seed,))
        assert torch.allclose(together(values)[m], alone(values[m : m + 1])[0], atol=1e-12)
        assert torch.allclose(of_values[m], alone.encode_values()[0], atol=1e-12)
        assert torch.allclose(of_objects[m], alone.encode(values[m : m + 1, :, :1])[0], atol=1e-12)


@every_kind
def test_vectors_never_depend_on_empty_slots_or_on_the_rest_of_the_batch(kind):
    network = encoder(kind)
    values = some_values(20)
    values[5:9, 2] = -1
    values[9:15, 1:] = -1
    values[9:11] = values[9:11].flip(1)  # the only object in the last slot
    together = network(values[None])[0]
    for row in range(20):
        held = values[row][(values[row] >= 0).all(1)]
        assert torch.allclose(together[row], network(held[None, None])[0, 0], atol=1e-12)
        assert torch.allclose(together[row], network.encode(held[None, None])[0, 0], atol=1e-12)


@every_kind
def test_what_can_tell_a_scene_from_its_swap(kind):
    scenes = SPACE.scenes([[0, 23, 9]])
    network = encoder(kind)
    apart = (network(scenes.values[None]) - network(scenes.swap(0).values[None])).abs().max()
    assert (float(apart) > 1e-3) is (kind != "bag")


def test_before_training_distance_says_nothing_so_a_scene_and_its_swap_coincide():
    scenes = SPACE.scenes([[0, 23, 9]])
    network = encoder("relative-tokens", near=False)
    assert float((network(scenes.values[None]) - network(scenes.swap(0).values[None])).abs().max()) < 1e-12


@every_kind
def test_order_matters_to_sequences_only(kind):
    values = some_values()
    network = encoder(kind)
    apart = float((network(values[None]) - network(values.flip(1)[None])).abs().max())
    assert (apart > 1e-4) is (kind in {"value-tokens", "relative-tokens", "grouped-tokens", "causal-tokens"})


@every_kind
def test_more_objects_than_slots_are_refused(kind):
    with pytest.raises(ValueError, match="1 to 2 objects; got one of 3"):
        encoder(kind, slots=2)(some_values(slots=3)[None])


def test_members_must_agree_in_their_numbers_of_objects():
    values = torch.stack([some_values(4), some_values(4)])
    values[1, 2, 1:] = -1
    with pytest.raises(ValueError, match="same number of objects"):
        encoder("object-tokens", seeds=(0, 1))(values)


def test_the_product_encoder_is_the_binding_function_of_that_name():
    network = encoder("product")
    assert isinstance(network, ProductEncoder)
    rule = ObjectProducts(SPACE, 3, 8, positions="shared").double()
    rule.load_state_dict({
        "additive.bias": torch.zeros(8).double(), "additive.sum.weight": network.sums.weight[0].detach(),
        "product.weight": network.factors.weight[0].detach(),
    })  # fmt: skip
    values = some_values()
    assert torch.allclose(network(values[None])[0], rule(values), atol=1e-12)


def test_the_first_layer_of_grouped_tokens_stays_within_an_object():
    mask = within_objects(2, 5)
    assert mask.shape == (11, 11)
    assert int(mask.sum()) == 2 * 25 + 1
    # A layer that reads the scene isn't grouped, so with one layer nothing is.
    values = some_values()
    plain, grouped = (encoder(kind, layers=1)(values[None]) for kind in ("value-tokens", "grouped-tokens"))
    assert torch.equal(plain, grouped)
    plain, grouped = (encoder(kind)(values[None]) for kind in ("value-tokens", "grouped-tokens"))
    assert not torch.allclose(plain, grouped, atol=1e-3)


def test_the_causal_encoder_is_read_at_its_last_token():
    """Changing the last object changes the vector, whatever the number of objects."""
    for slots in (1, 2, 3):
        values = some_values(1, slots)
        changed = values.clone()
        changed[0, -1, 0] = (changed[0, -1, 0] + 1) % 4
        network = encoder("causal-tokens")
        assert float((network(values[None]) - network(changed[None])).abs().max()) > 1e-3


@pytest.mark.parametrize("last", [False, True])
def test_distance_adds_a_number_of_each_head_to_the_scores(last):
    """Against loops over tokens, for two members with numbers of their own."""
    block = Block(generators([0, 1]), 8, 2, 16, 1, reach=5).double().requires_grad_(False)
    assert block.near is not None
    assert not block.near.any()
    block.near.normal_(std=0.1, generator=torch.Generator().manual_seed(0))
    added = 30 * block.near  # so that AdamW, which moves a weight by its rate at most, gets far enough
    x = torch.randn(2, 3, 4, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    normed = torch.nn.functional.layer_norm(x, (8,))
    found = block(x, None, last=last)
    for m in range(2):
        alone = {name: getattr(block, name) for name in ("ask", "show", "out")}
        ask, show, out = (lambda y, of=of, m=m: y @ of.weight[m] + of.bias[m] for of in alone.values())
        for item in range(3):
            query = ask(normed[m, item]).reshape(4, 2, 4)
            key, value = show(normed[m, item]).reshape(4, 2, 2, 4).unbind(1)
            read = torch.zeros(4, 2, 4, dtype=torch.float64)
            for i in range(4):
                for h in range(2):
                    scores = torch.stack([query[i, h] @ key[j, h] / 2 + added[m, h, j - i + 4] for j in range(4)])
                    read[i, h] = scores.softmax(0) @ value[:, h]
            written = x[m, item] + out(read.reshape(4, 8))
            whole = block.alone(written.expand(2, 1, -1, -1))[m, 0]
            assert torch.allclose(found[m, item], whole[-1:] if last else whole, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS[:6])
@pytest.mark.parametrize("layers", [1, 2])
def test_leaving_out_what_the_last_layer_doesnt_need_changes_nothing(kind, layers):
    network: Any = encoder(kind, layers=layers)
    values = some_values()
    short = network(values[None])
    for block in network.blocks:
        full = block.forward
        block.forward = lambda x, mask, last, full=full: full(x, mask, last=False)
    assert torch.allclose(short, network(values[None]), atol=1e-12)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("asking", "tokens"), [(1, 2), (2, 2), (1, 4), (3, 3), (9, 9)])
def test_attention_is_the_same_by_every_way(asking, tokens, masked):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(5, n, 2, 4, generator=generator) for n in (asking, tokens, tokens))
    mask = torch.ones(tokens, tokens, dtype=torch.bool).tril()[-asking:] if masked else None
    expected = torch.nn.functional.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), attn_mask=mask)
    assert torch.allclose(attend(q, k, v, mask), expected.transpose(1, 2), atol=1e-6)
    half = attend(q.bfloat16(), k.bfloat16(), v.bfloat16(), mask).float()
    assert torch.allclose(half, expected.transpose(1, 2), atol=0.05)  # eight bits of mantissa


def test_shared_towers_read_queries_with_the_scene_encoder():
    shape = EncoderShape(width=16, heads=2, dim=8)
    model = DualEncoder(SPACE, 2, DualShape(scene=shape, query=shape, towers="shared"), seeds=[0])
    ids = torch.arange(SPACE.num_objects)
    singles = SPACE.all_scenes(slots=1).values[None]
    assert torch.equal(model.object_queries(ids[None]), model.scenes(singles))


@pytest.mark.parametrize(
    ("change", "words"),
    [({"width": 18, "heads": 4}, "multiple"), ({"layers": 0}, "at least 1"), ({"dim": 0}, "at least 1")],
)
def test_impossible_shapes_are_refused(change, words):
    with pytest.raises(ValueError, match=words):
        EncoderShape(**change)


def test_both_encoders_need_one_width():
    with pytest.raises(ValueError, match="one output width"):
        DualShape(scene=EncoderShape(dim=8), query=EncoderShape(dim=16))
