"""`pqbroker completion`: a script for the shell, which then calls `pqbroker` for the words that fit."""

from enum import StrEnum
from typing import Annotated

from pqbroker.cli.command import Family, declare
from pqbroker.cli.output import say
from pqbroker.cli.parsing import Argument

_CALL = "_PQBROKER_COMPLETE=complete_bash pqbroker"


class ShellName(StrEnum):
    """Shells that are known."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


_SCRIPTS = {
    ShellName.BASH: f"""\
_pqbroker() {{
    local IFS=$'\\n'
    COMPREPLY=( $(env COMP_WORDS="${{COMP_WORDS[*]}}" COMP_CWORD=$COMP_CWORD {_CALL}) )
}}
complete -o default -F _pqbroker pqbroker""",
    ShellName.ZSH: f"""\
_pqbroker() {{
    compadd -- $(env COMP_WORDS="${{words[*]}}" COMP_CWORD=$((CURRENT - 1)) {_CALL})
}}
compdef _pqbroker pqbroker""",
    ShellName.FISH: f"""\
function _pqbroker
    env COMP_WORDS=(commandline -cp | string collect) COMP_CWORD=(count (commandline -opc)) {_CALL}
end
complete -c pqbroker -a '(_pqbroker)'""",
}

app = Family()


@declare(app, "completion", 'eval "$(pqbroker completion bash)"')
def completion(
    shell: Annotated[ShellName, Argument("SHELL", "Your shell: bash, zsh or fish.")],
) -> None:
    """Print what makes your shell complete commands, topics and groups.

    Put the line of the example into the file that your shell reads at its start, such as ~/.bashrc or ~/.zshrc; in
    fish it is `pqbroker completion fish | source`.
    """
    say(_SCRIPTS[shell])
