# Written by `synapse completion`
_synapse_words() {
  local line
  synapse completion --words "$@" 2>/dev/null | while IFS= read -r line; do printf '%s\n' "${line%%$'\t'*}"; done
}
_synapse() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=""
  # The name of an agent on another machine, codex@box2, is several words for bash.
  local whole=${COMP_LINE:0:${COMP_POINT:-0}}
  whole=${whole##*[[:space:]]}
  [[ $whole == ?*@* ]] || whole=$word
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="start stop restart up down ps list top usage status attach worktrees diff watch logs send reply ask broadcast queue tasks show cancel approvals approve deny answer resolve gateway link service fleet dashboard external push notify keys mcp scripted trust config doctor calibrate demo completion guide help claude codex copilot dummy gemini opencode"
  elif [[ $word == -* ]]; then
    case ${COMP_WORDS[1]} in
      start) words="--accept-from --help --json --name --no-instructions --no-mcp --port --resume --role --worktree" ;;
      stop) words="--all --force --help --json" ;;
      restart) words="--force --fresh --help --json" ;;
      up) words="--dry-run --example --foreground --fresh --help --json" ;;
      down) words="--help --json" ;;
      ps) words="--help --json" ;;
      list) words="--all --help --json --machine" ;;
      top) words="--help --json --once" ;;
      usage) words="--by --help --json --since --task" ;;
      status) words="--explain --help --json" ;;
      attach) words="--detach-key --help --read-only --take-over" ;;
      worktrees) words="--help --json" ;;
      diff) words="--help --json --stat" ;;
      watch) words="--agent --all --help --json --machine --task" ;;
      logs) words="--follow --help --json --lines --since" ;;
      send) words="--exit-on-wait --file --from --json --message-id --no-response --priority --queue --receipt --reply-to --response --task --timeout --ttl --wait" ;;
      reply) words="--failed --file --json --to" ;;
      ask) words="--help --json --option --timeout" ;;
      broadcast) words="--all --file --from --help --json --priority" ;;
      queue) words="--help --json" ;;
      tasks) words="--help --json --limit --machine --search" ;;
      show) words="--context --help --json --last --markdown --output --raw --since" ;;
      cancel) words="--help --json --queue" ;;
      approvals) words="--all --help --json" ;;
      approve) words="--help --json" ;;
      deny) words="--help --json" ;;
      answer) words="--help --json" ;;
      resolve) words="--delivered --fail --help --json --retry" ;;
      gateway) words="--behind-proxy --config --grpc-port --help --host --no-auth --port --public-url --tls-cert --tls-key" ;;
      link) words="--help" ;;
      service) words="--help" ;;
      fleet) words="--help" ;;
      dashboard) words="--all --help --json --no-open --port --read-only" ;;
      external) words="--help" ;;
      push) words="--help" ;;
      notify) words="--help" ;;
      keys) words="--help" ;;
      mcp) words="--help" ;;
      scripted) words="--accept-from --help --name --port --role" ;;
      trust) words="--help --json --list --revoke" ;;
      config) words="--help --json" ;;
      doctor) words="--help --json" ;;
      calibrate) words="--help --json --keep --pairwise --rows --terminals" ;;
      demo) words="--help" ;;
      completion) words="--help --install" ;;
      guide) words="--help" ;;
      help) words="" ;;
    esac
  elif [ "$before" = --task ]; then
    words=$(_synapse_words tasks)
  else
    case $COMP_CWORD:${COMP_WORDS[1]} in
      2:worktrees) words="remove" ;;
      2:service) words="install status uninstall" ;;
      2:fleet) words="create invite join status outbox allow leave remove start stop doctor" ;;
      2:dashboard) words="sessions revoke" ;;
      2:external) words="add list send cancel remove" ;;
      2:push) words="list" ;;
      2:notify) words="test rules log" ;;
      2:keys) words="create list revoke" ;;
      2:mcp) words="config install uninstall" ;;
      *:stop|*:restart|*:usage|*:diff|*:logs) words=$(_synapse_words agents) ;;
      *:status|*:show) words=$(_synapse_words agents remote-agents tasks) ;;
      *:attach|*:send|*:queue|*:tasks) words=$(_synapse_words agents remote-agents) ;;
      *:cancel|*:resolve) words=$(_synapse_words open-tasks) ;;
      *:approve|*:deny|*:answer) words=$(_synapse_words agents remote-agents open-tasks) ;;
      *:start) words="claude codex copilot dummy gemini opencode" ;;
      2:completion) words="bash zsh fish" ;;
      2:help) words="start stop restart up down ps list top usage status attach worktrees diff watch logs send reply ask broadcast queue tasks show cancel approvals approve deny answer resolve gateway link service fleet dashboard external push notify keys mcp scripted trust config doctor calibrate demo completion guide help" ;;
      3:service) words="gateway link team" ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$whole"))
  [ "$whole" = "$word" ] || COMPREPLY=("${COMPREPLY[@]#*@}")
}
complete -o default -F _synapse synapse
