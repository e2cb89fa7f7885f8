"""The WSGI application that gunicorn serves."""

import gc
import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "specweb.settings")
application = get_wsgi_application()

# What is loaded now stays. Looking through all of it again for garbage, in the middle of somebody's page, takes 100 ms and finds none.
import specweb.urls  # noqa: E402, F401  (its views too)

gc.collect()
gc.freeze()
