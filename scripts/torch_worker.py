"""A worker: holds a causal language model of Hugging Face transformers and answers calls from standard input.

The crate `torch-engine` starts it and has the other half of the protocol (crates/torch-engine/src/frame.rs). A frame is
its kind and the number of bytes that follow, both u32, then these bytes; all numbers are little-endian. Every call has
one answer. What libraries print goes to standard error.

Needs torch and transformers 4.56 or newer.
"""

import ctypes
import gc
import importlib.util
import inspect
import json
import os
import re
import select
import signal
import struct
import sys
import threading
import time
import traceback

VERSION = 1
MAGIC = b"omniwork"
LOAD, BEGIN, END, FORWARD, BEST, ROWS, CLOCK = range(1, 8)
# Calls to a loaded model, by the name of its method.
CALLS = {BEGIN: "begin", END: "end", FORWARD: "forward", BEST: "best", ROWS: "rows", CLOCK: "time"}
DONE, FAILED, HELLO = range(3)
# Tokens by which the room of a layer of a cache grows.
ROOM = 256
# Positions of a model whose configuration does not say how many it has.
POSITIONS = 2048
POSITION_KEYS = ["max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "seq_length", "n_ctx"]
OLDEST = (4, 56)
# Packages that quantised checkpoints and maps of devices want.
OTHERS = [
    "accelerate",
    "gptqmodel",
    "autoawq",
    "bitsandbytes",
    "compressed-tensors",
    "optimum",
    "torchao",
    "gguf",
    "kernels",
    "sentencepiece",
]
# Names of errors of the hub's library.
GATED = {"GatedRepoError"}
NOT_FOUND = {"RepositoryNotFoundError", "RevisionNotFoundError", "HFValidationError"}
NETWORK = {"OfflineModeIsEnabled", "LocalEntryNotFoundError", "ConnectionError", "ConnectError", "NetworkError"}
# Parts of messages about configurations that transformers has no causal language model for.
UNSUPPORTED = [
    "nrecognized configuration class",
    "nrecognized model",
    "does not recognize this architecture",
    "trust_remote_code",
]
# Largest difference of logits, over the largest logit, that rounding explains.
TOLERANCE = {"float32": 2e-3, "float64": 2e-3, "float16": 5e-2, "bfloat16": 1e-1}
# The same where activations may be rounded to few bits, which makes other rounding larger.
COARSE = 1e-1
# The same between calls of one shape, where no number should be rounded in another way.
SAME_SHAPE = 2e-3


class Refused(Exception):
    """A call without a result, with the fields of the answer."""

    def __init__(self, code, message, **fields):
        super().__init__(message)
        self.fields = {"code": code, "message": " ".join(str(message).split()), **fields}


class Pipes:
    """Frames from and to the program."""

    def __init__(self):
        self.input = os.fdopen(os.dup(0), "rb")
        self.output = os.fdopen(os.dup(1), "wb", buffering=0)
        # Nothing that a library reads or prints may meet a frame.
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)

    def read(self):
        """Kind and body of a call; the process ends with the program."""
        head = self.exactly(8)
        kind, length = struct.unpack("<II", head)
        return kind, self.exactly(length)

    def exactly(self, count):
        data = self.input.read(count)
        if len(data) < count:
            os._exit(0)
        return data

    def write(self, kind, body=b""):
        body = memoryview(body).cast("B")
        self.whole(memoryview(struct.pack("<II", kind, len(body))))
        self.whole(body)

    def whole(self, data):
        while data:
            data = data[self.output.write(data) :]


def end_with_program(pipes):
    """Ends this process when the program ends, also in the middle of a call."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # An interrupt is for the program, which ends this process.
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        try:
            ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
        except (AttributeError, OSError):
            pass  # A system without it has the other way, below.
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(pipes.input.fileno(), 0)  # Hanging up is always reported.

        def wait():
            poll.poll()
            os._exit(0)

        threading.Thread(target=wait, daemon=True).start()


def libraries():
    """torch and transformers."""
    try:
        import torch
    except ImportError as error:
        raise Refused("package", error, package="torch")
    try:
        import transformers
    except ImportError as error:
        raise Refused("package", error, package="transformers")
    version = tuple(int(part) for part in re.findall(r"\d+", transformers.__version__)[:2])
    if version < OLDEST:
        raise Refused("package", f"version {transformers.__version__} is too old", package="transformers")
    return torch, transformers


def causes(error):
    """An error and those that led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def is_memory(error):
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and ("out of memory" in text or "can't allocate memory" in text)


def refusal(error, options=None):
    """The answer to a call that raised an error."""
    if isinstance(error, Refused):
        return error.fields
    traceback.print_exception(error)
    first = str(error).strip().split("\n")[0] or type(error).__name__
    if is_memory(error):
        return Refused("memory", str(error).strip() or "the processor's memory is full").fields
    if options is not None:
        return loading_refusal(error, first, options)
    return Refused("failed", f"{type(error).__name__}: {first}").fields


def loading_refusal(error, first, options):
    names = {kind.__name__ for cause in causes(error) for kind in type(cause).__mro__}
    text = " ".join(str(cause) for cause in causes(error))
    # Transformers says of GPTQ without its package that it wants a GPU, with which it wants the package too.
    if "GPU is required to quantize" in text and importlib.util.find_spec("gptqmodel") is None:
        return Refused("package", "it reads GPTQ, also on a processor", package="gptqmodel").fields
    if isinstance(error, ImportError) or "pip install" in first:
        # Errors of other kinds say it too.
        asked = re.findall(r"pip install (?:-\S+ )*['\"]?([A-Za-z][\w.-]*)", text)
        named = [name for name in OTHERS if name in text] + [getattr(error, "name", None) or "a package"]
        return Refused("package", first, package=(asked + named)[0].rstrip(".")).fields
    if names & GATED or "gated repo" in text:
        fault = "gated"
    elif names & NOT_FOUND or "not a valid model identifier" in text:
        fault = "not_found"
    elif names & NETWORK:
        fault = "network"
    elif isinstance(error, ValueError) and any(part in text for part in UNSUPPORTED):
        fault = "unsupported"
    else:
        fault = "broken"
        if "same dtype" in text and options["dtype"] != "auto":
            first += "; a quantised checkpoint may take its own type alone: dtype auto"
    return Refused("model", first, model=options["model"], fault=fault).fields


class Sequence:
    """Tokens that were read: their keys and values, and the logits of the last ones."""

    def __init__(self, cache):
        self.cache = cache
        self.rows = None


def layer_with_room(dynamic):
    """A class of layers of a cache, derived from that of transformers: it has room for tokens to come. So a forward
    copies its own keys and values alone, and truncating sets a number.
    """

    class LayerWithRoom(dynamic):
        def __init__(self):
            super().__init__()
            self.count, self.room = 0, None

        def update(self, keys, values, *_, **__):
            start, self.count = self.count, self.count + keys.shape[-2]
            if self.room is None or self.room[0].shape[-2] < self.count:
                self.room = [self.larger(new, i, start) for i, new in enumerate((keys, values))]
                self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True
            for room, new in zip(self.room, (keys, values)):
                room.narrow(-2, start, new.shape[-2]).copy_(new)
            self.keys, self.values = (room.narrow(-2, 0, self.count) for room in self.room)
            return self.keys, self.values

        def larger(self, new, index, start):
            *outer, _, width = new.shape
            room = new.new_empty(*outer, (self.count + ROOM - 1) // ROOM * ROOM, width)
            if start:
                room.narrow(-2, 0, start).copy_(self.room[index].narrow(-2, 0, start))
            return room

        def get_seq_length(self, *_):
            return self.count

        def keep(self, count):
            self.count = min(self.count, count)

    return LayerWithRoom


class Model:
    """A loaded model with its sequences."""

    def __init__(self, options):
        self.torch, self.transformers = libraries()
        # The progress of loading is for people, and nobody looks.
        self.transformers.utils.logging.disable_progress_bar()
        self.options = options
        self.sequences = {}
        self.clock, self.seconds = None, 0.0
        self.model = self.load()
        self.text_config = self.model.config.get_text_config(decoder=True)
        self.quantised = self.quantisation()
        known = inspect.signature(self.model.forward).parameters
        self.knows_keep = "logits_to_keep" in known
        # Its name since transformers 5, and before.
        self.cache_key = "cache" if "cache" in known else "past_key_values"
        embedding = self.model.get_input_embeddings()
        # Where accelerate moves weights in and out, their own device says nothing.
        hook = getattr(embedding, "_hf_hook", None)
        self.device = getattr(hook, "execution_device", None) or embedding.weight.device
        self.on_cuda = self.torch.device(self.device).type == "cuda"
        self.embedded = embedding.weight.shape[0]
        self.layers()
        self.max_len = self.positions()
        self.fix_rotation()
        self.error = self.check()
        self.clock = options.get("clock")

    def load(self):
        name, revision = self.options["model"], None
        if not os.path.isdir(name):
            if os.path.isabs(name) or name.startswith("."):
                raise Refused("model", "there is no such folder", model=name, fault="not_found")
            name, _, revision = name.partition("@")
        gguf = packed(name)
        torch, where = self.torch, self.options["device_map"]
        kind = where.split(":")[0]
        if kind == "cuda" and not torch.cuda.is_available():
            raise Refused("device", "torch.cuda is not available", device_map=where)
        if kind == "mps" and not torch.backends.mps.is_available():
            raise Refused("device", "torch.backends.mps is not available", device_map=where)
        if kind not in ("auto", "balanced", "sequential"):
            try:
                torch.empty(0, device=where)
            except Exception as error:
                raise Refused("device", str(error).split("\n")[0], device_map=where)
        # cuDNN plans its attention anew for every length of the cache, which takes longer than a forward.
        if hasattr(torch.backends.cuda, "enable_cudnn_sdp"):
            torch.backends.cuda.enable_cudnn_sdp(False)
        # Without a number PyTorch takes as many as it likes.
        if self.options.get("threads"):
            torch.set_num_threads(self.options["threads"])
        keys = {"dtype": self.options["dtype"], "trust_remote_code": False}
        if revision:
            keys["revision"] = revision
        if gguf:
            keys["gguf_file"] = gguf
        by_accelerate = self.transformers.utils.is_accelerate_available()
        if by_accelerate:
            keys["device_map"] = where
        elif kind == "auto":
            where = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        elif kind in ("balanced", "sequential"):
            raise Refused("package", f"device_map {where} needs it", package="accelerate")
        model = self.transformers.AutoModelForCausalLM.from_pretrained(name, **keys)
        model = (model if by_accelerate else model.to(where)).eval()
        config = model.config.get_text_config(decoder=True)
        if getattr(config, "attn_logit_softcapping", None) and config._attn_implementation == "sdpa":
            # PyTorch's attention has no such cap, and transformers passes over that in silence.
            model.set_attn_implementation("eager")
        return model

    def quantisation(self):
        """Settings by which the weights are quantised; none for those that are not, or no longer."""
        settings = getattr(self.model.config, "quantization_config", None) or {}
        settings = settings if isinstance(settings, dict) else settings.to_dict()
        if settings.get("dequantize"):
            return {}
        threshold = settings.get("llm_int8_threshold", 6.0)
        if settings.get("load_in_8bit") and threshold > 0:
            self.refuse_rows(
                f"bitsandbytes in 8 bits, where a column of activations is computed in 16 bits once any token of a call is "
                f"beyond llm_int8_threshold ({threshold}) in it"
            )
        return settings

    def refuse_rows(self, reason):
        message = f"logits depend on later tokens of the same call: {reason}"
        raise Refused("model", message, model=self.options["model"], fault="dependent")

    def refuse(self, layer, message):
        raise Refused("cache", message, architecture=type(self.model).__name__, layer=layer)

    def layers(self):
        """Looks for layers of the cache that cannot be truncated."""
        from transformers import cache_utils

        if getattr(self.model, "_is_stateful", False) and not hasattr(self.text_config, "layer_types"):
            self.refuse(self.text_config.model_type, "it keeps a state, not keys and values")
        types = getattr(self.text_config, "layer_types", None) or []
        try:
            usual = cache_utils.DynamicCache(config=self.model.config).layers
        except Exception as error:
            self.refuse(", ".join(sorted(set(map(str, types)))) or "its layers", f"{type(error).__name__}: {error}")
        names = ["DynamicLayer", "DynamicIndexedLayer", "DummyLayer"]
        full = [getattr(cache_utils, name, None) for name in names]
        sliding = cache_utils.DynamicSlidingWindowLayer
        for index, layer in enumerate(usual):
            if type(layer) not in full and type(layer) is not sliding:
                name = types[index] if index < len(types) else "unnamed"
                message = f"layer {index} keeps a state from which tokens cannot be taken"
                self.refuse(f"{name} ({type(layer).__name__})", message)
        if getattr(self.model, "_is_stateful", False):
            self.refuse(self.text_config.model_type, "it keeps a state beside keys and values")
        self.layer = layer_with_room(cache_utils.DynamicLayer)

    def new_cache(self):
        from transformers import cache_utils

        cache = cache_utils.DynamicCache(config=self.model.config)
        # A sliding window would drop tokens. Every layer keeps all, and the mask hides those out of the window.
        plain = (cache_utils.DynamicLayer, cache_utils.DynamicSlidingWindowLayer)
        cache.layers = [self.layer() if type(layer) in plain else layer for layer in cache.layers]
        return cache

    def rotations(self):
        """Modules whose rotation changes with the length of a call, with the kind and the settings of each."""
        for module in self.model.modules():
            kinds = getattr(module, "rope_type", None)
            if kinds is None:
                continue
            settings = getattr(getattr(module, "config", None), "rope_parameters", None)
            settings = settings or getattr(getattr(module, "config", None), "rope_scaling", None) or {}
            for layer, kind in kinds.items() if isinstance(kinds, dict) else [(None, kinds)]:
                if kind == "longrope" or "dynamic" in str(kind):
                    yield module, layer, kind, settings if layer is None else settings.get(layer, {})

    def positions(self):
        """Largest number of tokens of a sequence."""
        found = [getattr(self.text_config, key, None) for key in POSITION_KEYS]
        found = [number for number in found if isinstance(number, int) and number > 0]
        settings = getattr(self.text_config, "rope_parameters", None) or getattr(self.text_config, "rope_scaling", None)
        settings = settings if isinstance(settings, dict) else {}
        kind = settings.get("rope_type", settings.get("type"))
        if found and kind in ("dynamic", "yarn") and settings.get("factor"):
            original = settings.get("original_max_position_embeddings") or found[0]
            found[0] = max(found[0], int(original * settings["factor"]))
        wanted = self.options.get("max_len")
        if not found:
            return wanted or POSITIONS
        return min(found[0], wanted) if wanted else found[0]

    def fix_rotation(self):
        """Gives every call the rotation of the longest one: a cache whose keys were rotated in different ways would
        depend on how a text was cut into calls."""
        torch = self.torch
        for module, layer, _, _ in list(self.rotations()):
            buffer = next(module.buffers(), None)
            device = self.device if buffer is None else buffer.device
            arguments = [torch.zeros(1, 1, device=device), torch.tensor([[self.max_len - 1]], device=device)]
            with torch.inference_mode(False), torch.no_grad():
                module(*arguments) if layer is None else module(*arguments, layer)
            if layer is None:
                module.rope_type = "fixed"
            else:
                module.rope_type = {**module.rope_type, layer: "fixed"}

    def check(self):
        """Tests that rows depend on the tokens before them alone, and that a truncated cache leaves no trace. Returns
        the largest difference over the largest logit.
        """
        worst, allowed = None, TOLERANCE.get(self.dtype(), 1e-1)
        if self.quantised:
            allowed = max(allowed, COARSE)
        # Which tokens an expert gets changes the shapes within a call.
        experts = any("expert" in key for key in self.text_config.to_dict())
        leaking = SAME_SHAPE if self.quantised and not experts else allowed
        if self.max_len < 6:
            message = f"a context of {self.max_len} tokens is too short"
            raise Refused("model", message, model=self.options["model"], fault="broken")
        # A model with experts may choose others where two are as good as each other: that is no fault of the cache.
        for attempt in range(3):
            ids = [(attempt * 7919 + 2654435761 * (i + 1) >> 7) % self.embedded for i in range(5)]
            other = [(id + 1) % self.embedded for id in ids]
            whole = self.read(Sequence(self.new_cache()), 0, ids, 5).float()
            self.vocab_size = whole.shape[-1]
            if whole.isnan().any():
                message = f"its logits are no numbers in {self.dtype()}: take another dtype"
                raise Refused("model", message, model=self.options["model"], fault="broken")
            cut = Sequence(self.new_cache())
            wrong = self.read(cut, 0, ids[:3] + other[3:], 5).float()
            if max(map(length, cut.cache.layers), default=0) != 5:
                self.refuse(self.text_config.model_type, "it keeps no keys and values of the tokens that it has read")
            rest = self.read(cut, 3, ids[3:], 2).float()
            before = self.read(Sequence(self.new_cache()), 0, ids[:3], 3).float()
            scale = whole.abs().amax().clamp_min(1e-6)
            leak = ((wrong - whole)[:3].abs().amax() / scale).item()
            causal = ((before - whole[:3]).abs().amax() / scale).item()
            truncated = ((rest - whole[3:]).abs().amax() / scale).item()
            if leak <= leaking and causal <= allowed and truncated <= allowed:
                return max(causal, truncated)
            worst = (causal, truncated, leak)
        if self.quantised and not worst[2] <= leaking:
            method = self.quantised.get("quant_method", "its quantisation")
            self.refuse_rows(f"{getattr(method, 'value', method)}; they differ by {worst[2]:.1e} of the largest")
        if not max(worst[0], worst[2]) <= allowed:
            message = f"logits depend on tokens after them: they differ by {max(worst[0], worst[2]):.1e}"
            self.refuse(self.text_config.model_type, message)
        self.refuse(self.text_config.model_type, f"logits after truncating differ by {worst[1]:.1e}")

    def read(self, sequence, keep, ids, wanted):
        """Truncates a sequence to `keep` tokens and appends `ids`; the logits of the last `wanted` ones."""
        torch = self.torch
        sequence.rows = None
        cut(sequence.cache, keep)
        if not ids or not 0 <= min(ids) <= max(ids) < self.embedded:
            raise Refused("failed", f"tokens that do not exist, among {self.embedded}")
        keys = {self.cache_key: sequence.cache, "use_cache": True}
        if self.knows_keep:
            keys["logits_to_keep"] = max(wanted, 1)
        try:
            with torch.inference_mode():
                given = torch.tensor([ids])
                # Copying from other memory would wait for all that the device has still to do.
                given = (given.pin_memory() if self.on_cuda else given).to(self.device, non_blocking=True)
                output = self.model(input_ids=given, **keys)
                return output.logits[0, -wanted:] if wanted else None
        except BaseException:
            cut(sequence.cache, keep)
            raise

    def facts(self):
        model, config = self.model, self.model.config
        devices = sorted({str(parameter.device) for parameter in model.parameters()})
        return {
            "vocab_size": self.vocab_size,
            "max_len": self.max_len,
            "architecture": type(model).__name__,
            "model_type": config.model_type,
            "dtype": self.dtype(),
            "device": ", ".join(devices),
            "parameters": model.num_parameters(),
            "memory_bytes": sum(map(size, {*model.parameters(), *model.buffers()})),
            "attention": str(getattr(config, "_attn_implementation", None)),
            "truncation_error": self.error,
            "folder": self.folder(),
            "revision": getattr(config, "_commit_hash", None),
            "threads": self.torch.get_num_threads(),
            "python": sys.version.split()[0],
            "torch": self.torch.__version__,
            "transformers": self.transformers.__version__,
        }

    def dtype(self):
        return str(self.model.dtype).removeprefix("torch.")

    def folder(self):
        name = self.options["model"]
        if os.path.isdir(name):
            return os.path.abspath(name)
        name, _, revision = name.partition("@")
        keys = {"revision": revision or None, "local_files_only": True}
        return os.path.dirname(self.transformers.utils.cached_file(name, "config.json", **keys))

    def begin(self, body):
        (number,) = struct.unpack("<I", body)
        self.sequences[number] = Sequence(self.new_cache())
        return b""

    def end(self, body):
        (number,) = struct.unpack("<I", body)
        self.sequences.pop(number, None)
        return b""

    def forward(self, body):
        numbers = struct.unpack(f"<{len(body) // 4}I", body)
        number, keep, wanted, fetch = numbers[:4]
        sequence, ids = self.sequences[number], list(numbers[4:])
        began = time.perf_counter()
        rows = self.read(sequence, keep, ids, wanted)
        if self.clock is not None:
            self.count(began)
        if fetch:
            return self.floats(rows)
        sequence.rows = rows
        return b""

    def count(self, began):
        """Waits for the device, and for the end of the least duration of a forward."""
        if self.on_cuda:
            self.torch.cuda.synchronize()
        time.sleep(max(0.0, began + self.clock - time.perf_counter()))
        self.seconds += time.perf_counter() - began

    def floats(self, rows):
        rows = rows.float().contiguous()
        if rows.device.type == "cuda":
            # Pinned memory, which PyTorch keeps for the next call, takes a fraction of the time of other memory.
            rows = self.torch.empty(rows.shape, dtype=rows.dtype, pin_memory=True).copy_(rows)
        return self.torch.Tensor.numpy(rows.cpu())

    def best(self, body):
        (number,) = struct.unpack("<I", body)
        torch, rows = self.torch, self.sequences[number].rows
        with torch.inference_mode():
            # Of equal ones PyTorch promises the first.
            largest, first = rows.max(-1)
            return torch.where(largest.isfinite(), first, -1).cpu().numpy().astype("<i8", copy=False)

    def time(self, body):
        return struct.pack("<d", self.seconds)

    def rows(self, body):
        number, start, end = struct.unpack("<III", body)
        return self.floats(self.sequences[number].rows[start:end])


def packed(folder):
    """Name of the GGUF file of a folder that has its weights in no other form."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    plain = [name for name in names if name.endswith((".safetensors", ".bin"))]
    files = [name for name in names if name.endswith(".gguf")]
    return files[0] if len(files) == 1 and not plain else None


def size(tensor):
    """Bytes of a tensor. A quantised one consists of others and says of itself what it stands for."""
    if hasattr(tensor, "__tensor_flatten__"):
        return sum(size(getattr(tensor, name)) for name in tensor.__tensor_flatten__()[0])
    return tensor.nbytes


def length(layer):
    """Number of tokens of a layer of a cache; 0 for one that keeps none."""
    keeps = hasattr(layer, "get_seq_length") and layer.is_initialized and layer.keys is not None
    return layer.get_seq_length() if keeps else 0


def cut(cache, keep):
    """Truncates a cache, whose layers may hold different numbers of tokens after an error."""
    for layer in cache.layers:
        if hasattr(layer, "room"):
            layer.keep(keep)
            continue
        beyond = length(layer) - keep
        if beyond > 0:
            layer.crop(-beyond)


def free():
    """Returns memory to the device after a model or a call that is gone."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def answer(model, kind, body):
    """The result of a call to a loaded model."""
    if model is None:
        raise Refused("failed", "no model is loaded")
    # Other holders of models, as in tests, may know fewer calls.
    call = getattr(model, CALLS.get(kind, ""), None)
    if call is None:
        raise Refused("failed", f"there is no call {kind}")
    return call(body)


def serve(pipes, load):
    """Answers calls; `load` makes a model from its options."""
    model = None
    while True:
        kind, body = pipes.read()
        failure, options = None, None
        try:
            if kind == LOAD:
                options = json.loads(body)
                if model is not None:
                    model = None
                    gc.unfreeze()
                    free()
                model = load(options)
                # Of what stays until the next model nothing has to be looked through again for garbage.
                gc.collect()
                gc.freeze()
                result = json.dumps(model.facts()).encode()
            else:
                result = answer(model, kind, body)
        except Exception as error:
            failure = refusal(error, options)
        if failure is None:
            pipes.write(DONE, result)
        else:
            # Only now that the error is gone, with all that its frames held.
            free()
            pipes.write(FAILED, json.dumps(failure).encode())


def main(load=Model, version=VERSION):
    pipes = Pipes()
    end_with_program(pipes)
    pipes.write(HELLO, MAGIC + struct.pack("<I", version))
    serve(pipes, load)


if __name__ == "__main__":
    main()
