"""Runs every measurement that README quotes: ``make bench``."""

import sys

from bench import client_agreement, sampler_cost

client_agreement.main()
sys.exit(sampler_cost.main(20.0))
