#pragma once
// Scripts without lists: they call `PROGRAM completion candidates WORD...`: one candidate per line with tab-separated
// help, and ":files" for file names.

#include <string_view>

namespace quench {

inline constexpr std::string_view kBashCompletion =
    R"script(# bash completion for quench: source it, or put it into share/bash-completion/completions/quench.
_quench() {
  local -a words=()
  local rest=$COMP_LINE i word kept apart files=
  # Bash cuts words at = and :, the program does not: parts with no blank between them belong together.
  for ((i = 0; i <= COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    apart=; [[ $rest == [[:space:]]* ]] && apart=1
    rest=${rest#"${rest%%[![:space:]]*}"}
    rest=${rest#"$word"}
    if [[ $i -gt 0 && ! $apart ]]; then words[-1]+=$word; else words+=("$word"); fi
  done
  # The part of the last word that bash keeps as it stands.
  kept=${words[-1]}
  [[ $word == *[!=:]* ]] && kept=${kept%"$word"}
  COMPREPLY=()
  while IFS=$'\t' read -r word _; do
    if [[ $word == :files ]]; then files=1; else COMPREPLY+=("${word#"$kept"}"); fi
  done < <("${words[0]/#\~/$HOME}" completion candidates "${words[@]}" 2>/dev/null)
  if [[ $files && ${#COMPREPLY[@]} -gt 0 ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "${words[-1]#"$kept"}")
  elif [[ ${#COMPREPLY[@]} -gt 0 && ${COMPREPLY[0]} == *[=.] ]]; then
    compopt -o nospace 2>/dev/null
  fi
}
# Where _quench finds nothing, bash completes names of files.
complete -o bashdefault -o default -F _quench quench
)script";

inline constexpr std::string_view kZshCompletion = R"script(#compdef quench
# zsh completion for quench: put it as _quench into a folder of $fpath.
_quench() {
  local line word help files=
  local -a whole unfinished
  for line in "${(@f)$(${~words[1]} completion candidates "${(@Q)words[1,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}"; do
    [[ -z $line ]] && continue
    if [[ $line == :files ]]; then files=1; continue; fi
    word=${${line%%$'\t'*}//:/\\:} help=${line#*$'\t'}
    [[ -n $help ]] && word+=:$help
    if [[ ${word%%:*} == *[=.] ]]; then unfinished+=("$word"); else whole+=("$word"); fi
  done
  (( $#whole )) && _describe -t words quench whole
  (( $#unfinished )) && _describe -t keys 'config key' unfinished -S ''
  if [[ $files ]]; then
    compset -P '--*='
    _files
  fi
}
if [[ ${funcstack[1]} == _quench ]]; then _quench "$@"; else compdef _quench quench; fi
)script";

inline constexpr std::string_view kFishCompletion =
    R"script(# fish completion for quench: put it into share/fish/vendor_completions.d/quench.fish.
function __quench_candidates
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    for line in (eval (string escape -- $words[1]) completion candidates (string escape -- $words "$current") 2>/dev/null)
        if test "$line" = :files
            set -l before (string match -r -- '^--[^=]*=' "$current")
            for file in (__fish_complete_path (string replace -r -- '^--[^=]*=' '' "$current"))
                echo "$before$file"
            end
        else
            echo $line
        end
    end
end
complete -c quench -f -a '(__quench_candidates)'
)script";

}  // namespace quench
