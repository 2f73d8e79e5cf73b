#!/usr/bin/env python3
"""Time a distillation step of a Llama-68M shape: this project's host trainer and PyTorch f32, in turn.

    python3 scripts/training_step.py --omnidraft target/release/omnidraft --threads 2

Needs torch and transformers. Both sides run forward, head on the shared ids only, reverse KL against random
teacher rows, backward, clipping and AdamW on 8 x 128 tokens; a tenth of the project's stretches are n-grams
over the whole vocabulary besides. The two alternate, so that whatever disturbs the machine disturbs both.
"""

import argparse
import json
import statistics
import subprocess
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

VOCAB, SHARED, BATCH, TOKENS = 32000, 22416, 8, 128


class Peer:
    """The same step in PyTorch."""

    def __init__(self):
        torch.manual_seed(0)
        config = LlamaConfig(
            hidden_size=768, intermediate_size=3072, num_hidden_layers=2,
            num_attention_heads=12, vocab_size=VOCAB, max_position_embeddings=2048,
        )
        self.model = LlamaForCausalLM(config)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=1e-4, weight_decay=0.01, fused=True
        )
        self.ids = torch.randint(VOCAB, (BATCH, TOKENS))
        self.shared = torch.arange(SHARED)
        self.teacher = torch.log_softmax(torch.randn(BATCH * (TOKENS - 1), SHARED) * 4, -1)

    def step(self):
        began = time.perf_counter()
        hidden = self.model.model(self.ids).last_hidden_state[:, :-1]
        head = self.model.lm_head.weight[self.shared]
        logits = hidden.reshape(-1, hidden.shape[-1]) @ head.T
        q = torch.log_softmax(logits, -1)
        loss = (q.exp() * (q - self.teacher)).sum(-1).mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return time.perf_counter() - began


def ours(binary, threads, updates):
    command = [binary, "bench", "learn", "--shape", "llama-68m", "--json",
               "--threads", str(threads), "--updates", str(updates), "--shared", str(SHARED),
               "--responses", str(BATCH), "--tokens", str(TOKENS)]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--omnidraft", default="target/release/omnidraft")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--updates", type=int, default=4, help="steps a turn")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    peer = Peer()
    peer.step()
    mine, parts, theirs = [], [], []
    for _ in range(args.turns):
        report = ours(args.omnidraft, args.threads, args.updates)
        mine.append(report["update_s"])
        parts.append((report["pass_s"], report["step_s"]))
        theirs += [peer.step() for _ in range(args.updates)]
        print(f"omnidraft {mine[-1]:.3f} s (pass {parts[-1][0]:.3f}, optimiser {parts[-1][1]:.3f}); "
              f"PyTorch {statistics.median(theirs[-args.updates:]):.3f} s", flush=True)
    a, b = statistics.median(mine), statistics.median(theirs)
    print(f"medians: omnidraft {a:.3f} s, PyTorch {torch.__version__} f32 {b:.3f} s, ratio {a / b:.2f}")


if __name__ == "__main__":
    main()
