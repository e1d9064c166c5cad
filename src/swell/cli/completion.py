"""`swell completion`"""

from __future__ import annotations

import click


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> int:
    """Print a shell completion script for commands, options, and job ids and names.

    \b
    bash:  echo 'eval "$(swell completion bash)"' >> ~/.bashrc
    zsh:   echo 'eval "$(swell completion zsh)"' >> ~/.zshrc
    fish:  swell completion fish > ~/.config/fish/completions/swell.fish
    """
    from click.shell_completion import get_completion_class

    from swell.cli.root import swell

    kind = get_completion_class(shell)
    assert kind is not None
    print(kind(swell, {}, "swell", "_SWELL_COMPLETE").source())
    return 0
