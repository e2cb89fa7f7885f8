# The service: web, worker and beat are this image with different commands. Agents are installed on their hosts instead.
FROM python:3.11-slim-bookworm
ENV PYTHONUNBUFFERED=1 UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy PATH=/app/.venv/bin:$PATH
RUN pip install --no-cache-dir uv==0.13.9 && useradd --create-home --uid 10001 specweb && install -d -o specweb /app /evidence
WORKDIR /app
COPY --chown=specweb pyproject.toml uv.lock README.md LICENSE manage.py ./
COPY --chown=specweb agent agent
COPY --chown=specweb specweb specweb
COPY --chown=specweb workers workers
USER specweb
RUN uv sync --locked --no-default-groups \
 && DEBUG=1 SPECWEB_STATIC_FROM_SOURCE=0 DATABASE_URL=postgres://none/none BROKER_URL=redis://none python manage.py collectstatic --noinput
VOLUME /evidence
EXPOSE 8000
CMD ["gunicorn", "specweb.wsgi", "--worker-class", "gthread", "--workers", "2", "--threads", "8", "--bind", "0.0.0.0:8000", "--timeout", "120"]
