"""Runs every measurement that README quotes: ``make bench``."""

from bench import client_agreement

client_agreement.main()
