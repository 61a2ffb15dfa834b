_synapse() {
  local word=${COMP_WORDS[COMP_CWORD]} words=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="start stop restart list top status attach watch logs send reply ask broadcast queue tasks cancel approvals approve deny answer resolve gateway dashboard external push notify keys mcp scripted trust config doctor calibrate demo completion guide help claude codex copilot dummy gemini opencode"
  elif [[ $word == -* ]]; then
    case ${COMP_WORDS[1]} in
      start) words="--accept-from --help --json --name --no-instructions --no-mcp --port --resume --role" ;;
      stop) words="--all --force --help --json" ;;
      restart) words="--force --fresh --help --json" ;;
      list) words="--help --json" ;;
      top) words="--help --json --once" ;;
      status) words="--explain --help --json" ;;
      attach) words="--detach-key --help --read-only --take-over" ;;
      watch) words="--agent --help --json --task" ;;
      logs) words="--follow --help --json --lines --since" ;;
      send) words="--exit-on-wait --file --from --json --message-id --no-response --priority --queue --receipt --reply-to --response --task --timeout --ttl --wait" ;;
      reply) words="--failed --file --json --to" ;;
      ask) words="--help --json --option --timeout" ;;
      broadcast) words="--all --file --from --help --json --priority" ;;
      queue) words="--help --json" ;;
      tasks) words="--help --json --limit --search" ;;
      cancel) words="--help --json --queue" ;;
      approvals) words="--help --json" ;;
      approve) words="--help --json" ;;
      deny) words="--help --json" ;;
      answer) words="--help --json" ;;
      resolve) words="--delivered --fail --help --json --retry" ;;
      gateway) words="--behind-proxy --config --grpc-port --help --host --no-auth --port --public-url --tls-cert --tls-key" ;;
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
      completion) words="--help" ;;
      guide) words="--help" ;;
      help) words="" ;;
    esac
  else
    case ${COMP_WORDS[1]} in
      answer|approve|attach|deny|logs|queue|restart|send|status|stop|tasks) words=$(synapse completion agents 2>/dev/null) ;;
      start) words="claude codex copilot dummy gemini opencode" ;;
      completion) words="bash zsh fish" ;;
      dashboard) words="sessions revoke" ;;
      external) words="add list send cancel remove" ;;
      mcp) words="config" ;;
      help) words="start stop restart list top status attach watch logs send reply ask broadcast queue tasks cancel approvals approve deny answer resolve gateway dashboard external push notify keys mcp scripted trust config doctor calibrate demo completion guide help" ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _synapse synapse

