"""Models on this machine: a folder, Hugging Face's cache, the headers of safetensors; and the hub, on a loopback."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from oomdoctor.sources.cache import cached
from oomdoctor.sources.checkpoint import checkpoint_facts
from oomdoctor.sources.model import find_model
from tests.program import oomdoctor

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 100,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
# By hand: embedding and head 2 x 100 x 64, two blocks of 4 x 64 x 64 + 3 x 64 x 128 + 2 x 64, a norm of 64.
PARAMETERS = 2 * 100 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 64


def _safetensors(path: Path, tensors: dict[str, tuple[str, list[int]]]) -> None:
    """A file with a header and no weights."""
    header = {
        name: {"dtype": dtype, "shape": shape, "data_offsets": [0, 0]} for name, (dtype, shape) in tensors.items()
    }
    content = json.dumps(header).encode()
    path.write_bytes(len(content).to_bytes(8, "little") + content)


def _model(folder: Path, **config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    return folder


def _cached_model(home: Path, name: str, **config: Any) -> Path:
    model = home / "hub" / f"models--{name.replace('/', '--')}"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("a" * 40)
    return _model(model / "snapshots" / ("a" * 40), **config)


def _facts(folder: Path, **known: Any) -> dict[str, Any]:
    return {fact.key: fact.value for fact in checkpoint_facts(str(folder), known)}


def test_a_model_of_the_cache_is_found_before_the_catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _cached_model(tmp_path, "meta-llama/Llama-2-7b-hf", hidden_size=96)
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert cached("meta-llama/Llama-2-7b-hf") == str(folder)
    assert find_model("meta-llama/Llama-2-7b-hf").config["hidden_size"] == 96
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "elsewhere"))
    assert find_model("meta-llama/Llama-2-7b-hf").config["hidden_size"] == 4096


@pytest.mark.parametrize("name", ["../../etc", "a/b/c", "", "a" * 200, "a/b;c", "/etc/passwd"])
def test_odd_names_are_looked_for_nowhere(name: str) -> None:
    assert cached(name) is None


def test_numbers_and_dtype_come_from_the_headers_of_all_shards(tmp_path: Path) -> None:
    folder = _model(tmp_path)
    _safetensors(folder / "m-1.safetensors", {"a": ("F16", [10, 20]), "b": ("F32", [5])})
    _safetensors(folder / "m-2.safetensors", {"c": ("F16", [3, 4, 5])})
    index = {"weight_map": {"a": "m-1.safetensors", "b": "m-1.safetensors", "c": "m-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    facts = _facts(folder)
    assert facts["config.parameters"] == 200 + 5 + 60
    assert facts["config.checkpoint_dtype"] == "float16"  # that of most numbers, not what config.json says
    assert "torch_dtype" not in facts
    assert _facts(folder, **{"config.dtype_auto": True})["torch_dtype"] == "float16"


def test_a_checkpoint_that_is_stored_quantized_is_loaded_so(tmp_path: Path) -> None:
    gptq = _model(tmp_path / "gptq", quantization_config={"quant_method": "gptq", "bits": 4})
    bnb = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
    nf4 = _model(tmp_path / "nf4", quantization_config={"quant_method": "bitsandbytes", **bnb})
    assert _facts(gptq)["quantization"] == "gptq-int4"
    assert _facts(nf4)["quantization"] == "nf4-double"


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff" * 8, (10**15).to_bytes(8, "little"), b"\x02" + b"\0" * 7 + b"[]", b"\x04\0\0\0\0\0\0\0{{{{"],
)
def test_broken_headers_say_nothing(tmp_path: Path, content: bytes) -> None:
    folder = _model(tmp_path)
    (folder / "model.safetensors").write_bytes(content)
    assert "config.parameters" not in _facts(folder)


def test_shards_outside_of_the_folder_are_not_opened(tmp_path: Path) -> None:
    folder = _model(tmp_path / "m")
    _safetensors(tmp_path / "x.safetensors", {"a": ("F16", [10, 20])})
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../x.safetensors"}}')
    assert "config.parameters" not in _facts(folder)


def test_a_plan_says_where_files_and_shape_disagree(tmp_path: Path) -> None:
    folder = _model(tmp_path / "m")
    _safetensors(folder / "model.safetensors", {"a": ("BF16", [2 * PARAMETERS])})
    (tmp_path / "t.yaml").write_text(f"model_name_or_path: {folder}\nper_device_train_batch_size: 1\n")
    ask = ("bill", "--config", tmp_path / "t.yaml", "--no-gpu", "--json")
    notes = json.loads(oomdoctor(*ask).stdout)["notes"]
    assert any(f"{PARAMETERS:,}".replace(",", " ") in note.replace(",", " ") for note in notes)
    _safetensors(folder / "model.safetensors", {"a": ("BF16", [PARAMETERS])})
    assert not json.loads(oomdoctor(*ask).stdout)["notes"]


class _Hub(BaseHTTPRequestHandler):
    """The two files of one model, as the hub answers."""

    asked: list[str] = []  # noqa: RUF012

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        _Hub.asked.append(self.path)
        known = self.path.endswith("/tiny/model/resolve/main/config.json")
        body = json.dumps(CONFIG).encode() if known else b""
        self.send_response(200 if known else 404)
        for key, value in {"X-Repo-Commit": "b" * 40, "ETag": '"e1"', "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    _Hub.asked.clear()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_under_hub_a_config_is_fetched_by_name_and_only_then(hub: str, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    (tmp_path / "t.yaml").write_text(
        "model_name_or_path: tiny/model\nper_device_train_batch_size: 1\nmax_length: 128\n"
    )
    ask = ("bill", "--config", tmp_path / "t.yaml", "--no-gpu", "--json")
    where = {
        "HF_ENDPOINT": hub,
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_CACHE": str(tmp_path / "hf" / "hub"),
        "NO_PROXY": "127.0.0.1",
    }
    without = oomdoctor(*ask, **where)
    assert without.returncode == 2 and not _Hub.asked
    done = oomdoctor(*ask, "--hub", **where)
    assert done.returncode == 0, done.stdout
    assert any(path.endswith("config.json") for path in _Hub.asked)
    _Hub.asked.clear()
    assert oomdoctor(*ask, **where).returncode == 0 and not _Hub.asked  # now it is in the cache
    (tmp_path / "t.yaml").write_text("model_name_or_path: no/such\nper_device_train_batch_size: 1\n")
    missing = oomdoctor(*ask, "--hub", **where)
    assert missing.returncode == 2 and "no/such" in json.loads(missing.stdout)["error"]["reference"]


def test_without_hub_no_socket_is_ever_opened(tmp_path: Path) -> None:
    """A module that is loaded first makes every connection an error."""
    (tmp_path / "sitecustomize.py").write_text(
        "import socket\ndef no(*a, **k): raise SystemExit('network')\n"
        "socket.socket = socket.create_connection = socket.getaddrinfo = no\n"
    )
    (tmp_path / "t.yaml").write_text("model_name_or_path: meta-llama/Llama-2-7b-hf\nper_device_train_batch_size: 1\n")
    root = str(Path(__file__).parents[2])
    done = oomdoctor(
        "plan", "--config", tmp_path / "t.yaml", "--gpus", "8x A100-80GB", "--no-gpu", PYTHONPATH=f"{tmp_path}:{root}"
    )
    assert done.returncode == 0, done.stderr
