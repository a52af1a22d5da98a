complete -c colors -l listen -d 'Or a port, or unix:PATH; repeatable' -r -f
complete -c colors -l unix-mode -d 'Permissions of a unix socket\'s file, octal' -r -f
complete -c colors -l seed -d 'Fills the list [default: ./seed/colors.json if there, or built in]' -r -F
complete -c colors -l data -d 'SQLite FILE, or etcd://HOST:PORT,.../KEY, for many services' -r -F
complete -c colors -l etcd-user-file -d 'USER:PASSWORD for etcd; read again whenever it is sent' -r -F
complete -c colors -l follow -d 'Keep a copy of the list of the service there' -r -f
complete -c colors -l follow-token-file -d 'Token for that service; read again whenever it is sent' -r -F
complete -c colors -l base-path -d 'Path that everything is served below, as in /api' -r -f
complete -c colors -l workers -d 'Event loops, one thread each [default: one per processor but one]' -r -f
complete -c colors -l max-body -d 'Longest content of a request, at most 16 MiB' -r -f
complete -c colors -l request-timeout -d 'Longest wait for a request, or for a client to read' -r -f
complete -c colors -l keep-alive -d 'Longest time between two requests on a connection' -r -f
complete -c colors -l read-only -d 'Allow only reads: clients change nothing' -r -f -a "true\t''
false\t''"
complete -c colors -l token-file -d 'Changes need a bearer token of this file; read again on SIGHUP' -r -F
complete -c colors -l private -d 'Reads of colors and metrics need a token, too' -r -f -a "true\t''
false\t''"
complete -c colors -l allow-origin -d 'Let the web pages of this origin use it; repeatable' -r -f
complete -c colors -l allow-host -d 'Host name to answer to, besides localhost; repeatable' -r -f -a "(__fish_print_hostnames)"
complete -c colors -l log-level -d 'Least severe to log: off, error, warn, info, debug' -r -f -a "off\t''
error\t''
warn\t''
info\t''
debug\t''"
complete -c colors -l access-log -d 'Log every request, or =changes: those that changed the list' -r -f -a "changes\t''
true\t''
false\t''"
complete -c colors -l health -d 'Ask the service there, or else at --listen, whether all is well' -r -f
complete -c colors -l check -d 'Check options and files; listens nowhere, changes no list'
complete -c colors -l dump -d 'Print the list of --data as JSON, in use or not; recovers it first'
complete -c colors -s h -l help -d 'Print help'
complete -c colors -s V -l version -d 'Print version'
