"""Where the built-in prompt sets come from: tables of subjects and forms, written for this project."""
