"""Services: teams and the gateway as systemd user units, which start with the machine and are restarted."""
