"""`tengen generate`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tengen.cli.common import plain_errors
from tengen.models.pretrained import from_pretrained, load_tokenizer


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--prompt", required=True, help="The text to continue; - reads it from standard input.")
@click.option("--tokens", type=click.IntRange(1), default=100, show_default=True, help="How many tokens to add at most.")
@click.option("--temperature", type=click.FloatRange(0), default=0.0, show_default=True, help="0 takes the likeliest token.")
@click.option("--top-k", type=click.IntRange(1), help="Draw only among so many tokens.")
@click.option("--top-p", type=click.FloatRange(0, 1, min_open=True), help="Draw only among the likeliest of this probability together.")
@click.option("--min-p", type=click.FloatRange(0, 1), help="Draw only among tokens so many times as likely as the likeliest.")
@click.option("--repetition-penalty", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True, help="Above 1: new words.")
@click.option("--stop", multiple=True, help="A text to end behind.")
@click.option("--seed", type=int, default=0, show_default=True, help="Where the draws begin.")
@click.option("--echo", is_flag=True, help="Show the prompt, too.")
@plain_errors
def generate(folder: Path, prompt: str, tokens: int, seed: int, stop: Sequence[str], echo: bool, **sampling: Any) -> None:
    """Continues a text with the network in FOLDER, which is in Hugging Face's layout: config.json, safetensors, tokenizer.json. What is
    written appears as it is made; equal arguments give equal texts on every machine.

    \b
        tengen generate ./TinyLlama --prompt "Once upon a time" --tokens 50
        tengen generate ./gpt2 --prompt - --temperature 0.8 --top-p 0.95 --seed 1 < prompt.txt
    """
    words, net = load_tokenizer(folder), from_pretrained(folder)
    if not hasattr(net, "stream"):
        raise click.ClickException(f"{folder}: a {type(net).__name__} does not write texts")
    text = sys.stdin.read() if prompt == "-" else prompt
    ids = words.encode(text).ids
    if not ids:
        raise click.ClickException("the prompt has no tokens; help: at least one word")
    count = min(tokens, net.context - len(ids))
    if count < 1:
        raise click.ClickException(f"the prompt has {len(ids)} tokens, and the network sees {net.context}")
    shown, new = "", []
    begin = words.decode(ids) if echo else ""
    click.echo(begin, nl=False)
    for token in net.stream([ids], count, seed=seed, stop=stop, decode=words.decode, **sampling):
        new.append(int(token[0]))
        now = words.decode(ids + new)[len(words.decode(ids)) :] if echo else words.decode(new)
        if not now.endswith("\ufffd"):  # a part of a character
            click.echo(now[len(shown) :], nl=False)
            shown = now
    click.echo()
