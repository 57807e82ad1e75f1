"""A file of completions for bash: it lists commands, options and their choices, so that no TAB starts Python."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from foundation.options.command_help import Option
from foundation.options.option_values import flags_of

FILE = """\
# Completions of {program} for bash: source this file, or put it into
# ~/.local/share/bash-completion/completions/{program}; zsh reads it after "autoload -U bashcompinit && bashcompinit".
_{name}_words() {{
  local words=
  if ((COMP_CWORD == 1)); then
    words="{commands}"
  else
    case "${{COMP_WORDS[1]}} $3" in
{choices}      *)
        case "${{COMP_WORDS[1]}}" in
{options}        esac
        ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$2"))
}}
complete -o bashdefault -o default -F _{name}_words {program}
"""


def bash_completion(
    program: str, options: Mapping[str, Iterable[Option]], choices: Mapping[str, Mapping[str, Sequence[str]]]
) -> str:
    """Return the file. ``options``: of each command. ``choices``: of each command, the words that may follow a flag,
    and after an empty one those that may stand alone."""
    choice_lines, option_lines = [], []
    for command, listed in options.items():
        table = list(listed)
        following = {
            flag: _names(option.hint) for option in table for flag in flags_of(option) if not option.positional
        }
        for flag, names in {**following, **choices.get(command, {})}.items():
            if flag and names:
                choice_lines.append(f'      "{command} {flag}") words="{" ".join(names)}" ;;\n')
        flags = [option.name for option in table if not option.positional]
        more = [flag for flag in choices.get(command, {}) if flag.startswith("--")]
        words = " ".join(dict.fromkeys([*choices.get(command, {}).get("", ()), *flags, *more, "--help"]))
        option_lines.append(f'          {command}) words="{words}" ;;\n')
    return FILE.format(
        program=program,
        name=program.replace("-", "_"),
        commands=" ".join(options),
        choices="".join(choice_lines),
        options="".join(option_lines),
    )


def _names(hint: Any) -> list[str]:
    """Return the values of an option that has a few."""
    for kind in (hint, *get_args(hint)):
        if get_origin(kind) is Literal:
            return list(map(str, get_args(kind)))
    return []
