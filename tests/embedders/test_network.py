"""A network that isn't there, or a proxy that refuses: one sentence, and no advice that was followed already."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from colligate.cli import main
from colligate.embedders import load_model, weights


class Refusing(BaseHTTPRequestHandler):
    """A proxy that knows no address."""

    def _refuse(self) -> None:
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD = do_CONNECT = _refuse  # noqa: N815 (names that http.server looks for)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    _through(monkeypatch, address)
    yield address
    server.shutdown()
    server.server_close()


def _through(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    from huggingface_hub import constants

    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, address)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


NAMES = ["hf:nobody/no-model", "sbert:nobody/no-model", "open_clip:ViT-B-32/laion2b_s34b_b79k", "open_clip:RN50/openai"]


@pytest.mark.parametrize("name", NAMES)
def test_a_proxy_that_refuses_is_one_sentence(name: str, proxy: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-model", name, "--online"]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert "not on this machine and could not be fetched: " in said
    assert "--online" not in said


@pytest.mark.parametrize("name", NAMES)
def test_a_network_that_does_not_answer_is_given_up_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is tried again: one connection is made, and after the time-out one sentence is said."""
    made = list[object]()
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(8)
        _through(monkeypatch, f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr(weights, "TIME_OUT", 0.3)
        connect = socket.socket.connect
        monkeypatch.setattr(socket.socket, "connect", lambda self, to: (made.append(to), connect(self, to))[1])
        with pytest.raises(FileNotFoundError, match=r"could not be fetched: https?://\S+ (doesn't answer|can't be)"):
            load_model(name, offline=False)
    assert len(made) == 1


def test_without_a_network_a_copy_on_this_machine_is_used(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def downloaded(name: str, *, local_files_only: bool, **_: object) -> str:
        assert local_files_only, "the network isn't there"
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", downloaded)
    monkeypatch.setattr(weights, "unreachable", lambda: "no network")
    assert weights.model_folder("some/model", prefix="hf", offline=False) == tmp_path


def test_only_an_offline_call_is_told_of_online() -> None:
    with pytest.raises(FileNotFoundError, match=r"; or add --online \(offline=False\)\.$"):
        load_model("hf:nobody/no-model")
