"""AMD code objects on a CPU: reading them (code_object) and executing them (interpreter). See tests/gpu/README.md."""
