"""Pictures against captions: the loss against a plain one, resuming, refusals, and a trained model asked in words."""

import json
from dataclasses import replace

import pytest
import torch

from colligate.cli import main
from colligate.embedders import load_model
from colligate.embedders.controls import NoControl, random_init
from colligate.networks.words import CaptionEncoder
from colligate.training.config import TrainConfig
from colligate.training.pairs import PairTrainer, caption_loss, same_scenes, trainer_of
from colligate.training.presets import PicturesConfig

CPU = torch.device("cpu")
TINY = PicturesConfig(
    values=6, shapes=6, coverage=0.5, hold_out="objects", width=16, heads=2, dim=8, layers=2, batch=16, steps=8,
    warmup=4, evaluate_every=4, checkpoint_every=4, precision="float32", budget=60,
)  # fmt: skip


def run(trainer, until=None):
    while trainer.step < (until or trainer.config.steps):
        trainer.advance()
        if trainer.step % trainer.config.evaluate_every == 0:
            trainer.look()
    return trainer


def test_the_caption_loss_is_a_plain_cross_entropy_both_ways():
    generator = torch.Generator().manual_seed(0)
    scenes, captions = torch.randn(2, 5, 3, generator=generator).unbind(0)
    objects = torch.tensor([[0, 1], [2, 3], [1, 0], [4, 4], [4, 5]])
    expected = 0.0
    for i in range(5):
        same = [j for j in range(5) if sorted(objects[j].tolist()) == sorted(objects[i].tolist())]
        for given, others in ((scenes[i], captions), (captions[i], scenes)):
            logs = torch.log_softmax(7.0 * others @ given, 0)
            expected -= float(logs[same].mean()) / 10
    found = caption_loss(scenes[None], captions[None], same_scenes(objects[None]), torch.full((1, 1, 1), 7.0))
    assert float(found) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "changes",
    [{}, {"object_loss": 0.0, "queries": "swaps", "jitter": 0, "wordings": False, "order": "left-first"}],
    ids=["default", "captions"],
)
def test_members_alone_and_together(changes):
    config = replace(TINY, **changes)
    members = [replace(config, seed=seed) for seed in (0, 4)]
    together = PairTrainer(members, CPU)
    losses = together.loss()
    for m, member in enumerate(members):
        alone = PairTrainer([member], CPU).loss()
        assert float(alone.detach()) == pytest.approx(float(losses[m].detach()), rel=1e-4)


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path):
    whole = run(PairTrainer([TINY], CPU))
    part = run(PairTrainer([TINY], CPU), until=4)
    part.save(tmp_path / "state.safetensors", "key")
    rest = PairTrainer([TINY], CPU)
    rest.resume(tmp_path / "state.safetensors", "key")
    run(rest)
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, rest.model.state_dict()[name]), name
    assert whole.curves == rest.curves


def test_pictures_move_and_captions_change_their_words_and_order():
    trainer = PairTrainer([replace(TINY, jitter=1)], CPU)
    objects = torch.full((1, 40, 2), 3)
    assert len(trainer._pictures(objects)[0].flatten(1).unique(dim=0)) > 20
    still = PairTrainer([replace(TINY, jitter=0)], CPU)
    assert len(still._pictures(objects)[0].flatten(1).unique(dim=0)) == 1
    said = list[str]()
    teller = still.model.query
    assert isinstance(teller, CaptionEncoder)
    plain, teller.say = teller.say, lambda values, wording=0: said.append(str(wording)) or plain(values, wording)
    for _ in range(5):
        still.advance()
    assert set(said) == {"0", "1", "2", "3"}


def test_captions_that_say_the_place_are_true_of_one_order_only():
    trainer = PairTrainer([TINY], CPU)
    teller = trainer.model.query
    assert isinstance(teller, CaptionEncoder)
    heard = list[torch.Tensor]()
    plain, teller.encode_words = teller.encode_words, lambda words: heard.append(words) or plain(words)
    objects = torch.tensor([[[0, 7], [7, 0], [0, 7]]])
    said = torch.tensor([[[0, 7], [0, 7], [7, 0]]])
    same = trainer._captions(teller, objects, said, wording=4)[1]
    assert [teller.text(words) for words in heard[0][0]] == [
        "a blue square left of a brown triangle",
        "a blue square right of a brown triangle",
        "a brown triangle right of a blue square",
    ]
    assert same[0].int().tolist() == [[1, 0, 1], [0, 1, 0], [1, 0, 1]]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"values": 17}, "2 to 16 colours"),
        ({"encoder": "bag"}, "leave encoder out"),
        ({"penalty": "additive"}, "no penalty"),
        ({"caption_loss": 0.0, "object_loss": 0.0}, "one above 0"),
        ({"side": 30}, "tile"),
        ({"jitter": -1}, "at least 0"),
    ],
)
def test_settings_that_make_no_sense(changes, said):
    with pytest.raises(ValueError, match=said):
        replace(TINY, **changes)


def test_low_coverage_in_quadruples_says_what_to_do():
    with pytest.raises(ValueError, match="--hold-out objects"):
        PicturesConfig(coverage=0.3).divide()


def test_pictures_and_token_scenes_dont_stack():
    with pytest.raises(ValueError, match="train them apart"):
        trainer_of([TINY, TrainConfig()], CPU)


def test_a_trained_model_is_asked_in_words(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    sizes = ["--values", "3", "--shapes", "3", "--coverage", "0.7", "--hold-out", "objects", "--width", "16",
             "--dim", "8", "--layers", "1", "--batch", "16", "--steps", "4", "--warmup", "2", "--evaluate-every", "4",
             "--budget", "60"]  # fmt: skip
    assert main(["train", "--preset", "pictures", *sizes, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 12
    [folder] = tmp_path.glob("runs/train-*")
    ids = {line.split(",")[0] for line in (folder / "table.csv").read_text().splitlines()}
    assert {"recognition.concept.unseen", "recognition.object.unseen.table", "recognition.object.seen.swaps"} <= ids
    assert "pictures" in (folder / "table.csv").read_text()  # the family
    assert main(["recognize", f"run:runs/{folder.name}", "--json", "--store", "store"]) == 0
    rows = {row["id"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["crossmodal.object"]["random_init"] is not None
    [record] = tmp_path.glob("runs/recognize-*/record.json")
    notes = json.loads(record.read_text())["notes"]
    assert any("sprites:3x3" in note for note in notes)
    model = load_model(f"run:runs/{folder.name}")
    control = random_init(model, 1)
    assert not isinstance(control, NoControl)
    assert list(model.towers) == list(control.towers) == ["picture", "text"]
    assert main(["foils", f"run:runs/{folder.name}", "--json", "--store", "store"]) == 0
