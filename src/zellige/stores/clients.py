"""How to reach a server: what users say about it, checked, as a client of obstore that every process builds for itself.

Credentials that a user gave stay here: no repr shows them, no error quotes them, and a pickle that holds them warns.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from zellige.errors import CredentialsWarning
from zellige.settings import config
from zellige.stores import credentials
from zellige.stores.locks import KeyLock

# -- the library ----------------------------------------------------------------------------------


class Library(NamedTuple):
    """obstore, or a copy of its own for this process."""

    calls: Any
    stores: Any
    errors: Any


_born = os.getpid()
_loaded: dict[int, Library] = {}
"""By process."""


def library() -> Library:
    """The functions, stores and errors of obstore, as this process may use them: one copy for all threads."""
    pid = os.getpid()
    found = _loaded.get(pid)
    if found is None:
        # A function takes only stores of its own copy, and the first requests of a process may come from many threads.
        with KeyLock(("obstore", pid)):
            found = _loaded.get(pid) or _load(pid)
            _loaded[pid] = found
    return found


def _load(pid: int) -> Library:
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ImportError as error:
        raise ImportError("object stores and HTTP need obstore; run: pip install 'zellige[cloud]'") from error
    if pid == _born:
        return Library(obstore, obstore.store, obstore.exceptions)
    fresh = _load_again(sys.modules["obstore._obstore"].__file__)
    return Library(fresh, fresh._store, fresh.exceptions)


def _load_again(path: Any) -> Any:
    """Another copy of an extension module, with its own global state.

    obstore runs its requests on threads that it starts once in a process. A forked child has none of them, and waits
    for ever. The file is copied, because the system loads each only once.
    """
    import importlib.util
    import shutil
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        spec = importlib.util.spec_from_file_location("obstore._obstore", shutil.copy(path, folder))
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} cannot be loaded again in a forked process; start processes with 'spawn'")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


# -- URLs -----------------------------------------------------------------------------------------

SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az", "abfss": "az"}
"""Schemes of object stores, by the kind of server."""

_userinfo = re.compile(r"(?<=://)[^/@\s]*@")
_query = re.compile(r"(?<=[?&;])([\w.~%-]+=)[^&\s\"'<>),]+")


def redacted(text: str) -> str:
    """A URL, or a text with URLs, without what may be secret: users, passwords, and the values of queries.

    >>> redacted("GET https://me:pass@host/x.zarr?sig=abc&v=1 failed")
    'GET https://***@host/x.zarr?sig=***&v=*** failed'
    """
    return _query.sub(r"\1***", _userinfo.sub("***@", text))


def split_url(url: str) -> tuple[str, str, str, str]:
    """The kind of server, the bucket, the path in it, and for Azure the account, of the URL of an object store.

    Nothing is decoded: an object store's key may hold any character, also `%`, `#` and `?`.
    """
    scheme, _, rest = url.partition("://")
    kind = SCHEMES[scheme.lower()]
    bucket, _, path = rest.partition("/")
    account = ""
    if kind == "az" and "@" in bucket:  # abfs://container@account.dfs.core.windows.net/path
        bucket, _, host = bucket.partition("@")
        account = host.partition(".")[0]
    if not bucket or "@" in bucket or ":" in bucket:
        raise ValueError(
            f"store {redacted(url)!r} names no bucket; write {scheme}://bucket/path, and give credentials and "
            "endpoints in storage_options"
        )
    return kind, bucket, "/".join(part for part in path.split("/") if part), account


# -- options --------------------------------------------------------------------------------------


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_COMMON = {
    **dict.fromkeys(("anonymous", "anon", "skip_signature"), "config.skip_signature"),
    **dict.fromkeys(("endpoint", "endpoint_url"), "config.endpoint"),
    **{name: f"client.{name}" for name in ("allow_http", "allow_invalid_certificates", "connect_timeout", "timeout")},
    **{name: f"client.{name}" for name in ("read_timeout", "default_headers", "proxy_url", "proxy_excludes")},
    **{name: f"client.{name}" for name in ("root_certificate", "user_agent", "pool_idle_timeout")},
    "headers": "client.default_headers",
    "instance_credentials": "instance_credentials",
    "max_retries": "retry.max_retries",
    "retry_timeout": "retry.retry_timeout",
}
_S3 = _words(
    "access_key_id secret_access_key session_token region default_region checksum_algorithm conditional_put "
    "disable_tagging disable_bulk_delete metadata_endpoint imdsv1_fallback request_payer role_arn role_session_name "
    "s3_express server_side_encryption sse_bucket_key_enabled sse_customer_key_base64 sse_kms_key_id sts_endpoint "
    "unsigned_payload virtual_hosted_style_request web_identity_token_file copy_if_not_exists "
    "container_credentials_relative_uri container_credentials_full_uri container_authorization_token_file"
)
_GS = _words("service_account service_account_key application_credentials bearer_token base_url")
_AZ = _words(
    "account_name account_key client_id client_secret tenant_id authority_host sas_key token use_emulator "
    "use_fabric_endpoint encryption_key msi_endpoint object_id msi_resource_id federated_token_file use_azure_cli "
    "credential_type disable_tagging"
)

_KNOWN: dict[str, dict[str, str]] = {
    "s3": {
        **_COMMON,
        **{name: f"config.{name}" for name in _S3},
        **{f"aws_{name}": f"config.{name}" for name in _S3},
        # as s3fs and boto3 call them
        "key": "config.access_key_id",
        "secret": "config.secret_access_key",
        "token": "config.session_token",
        "region_name": "config.region",
        "requester_pays": "config.request_payer",
        "profile": "profile",
    },
    "gs": {**_COMMON, **{name: f"config.{name}" for name in _GS}, "endpoint": "config.base_url"}
    | {"endpoint_url": "config.base_url", "token": "config.bearer_token"},
    "az": {**_COMMON, **{name: f"config.{name}" for name in _AZ}, "sas_token": "config.sas_key"},
    "http": {name: place for name, place in _COMMON.items() if place.startswith(("client.", "retry."))},
}
_NESTED = {"client_options": "client", "retry_config": "retry", "client_kwargs": None, "config_kwargs": None}
"""Options within options: obstore's own, and those that s3fs hands to boto3, which have the names above."""

_SECRET = _words(
    "access_key_id secret_access_key session_token sse_customer_key_base64 service_account_key bearer_token "
    "account_key client_secret sas_key token encryption_key default_headers proxy_url "
    "credential_provider"
)
_SECONDS = frozenset({"connect_timeout", "timeout", "read_timeout", "retry_timeout", "pool_idle_timeout"})

Options = dict[str, dict[str, Any]]


def parse_options(kind: str, given: Mapping[str, Any]) -> Options:
    """Options by any of their names, as {"config": …, "client": …, "retry": …, "other": …} by obstore's names."""
    known = _KNOWN[kind]
    found: Options = {"config": {}, "client": {}, "retry": {}, "other": {}}
    for name, value in given.items():
        if value is None:
            continue
        if name in _NESTED:
            if not isinstance(value, Mapping):
                raise TypeError(f"storage_options[{name!r}] is a {type(value).__name__}; it must be a mapping")
            part = _NESTED[name]
            for section, options in ({part: value} if part else parse_options(kind, value)).items():
                found[section].update(options)
        elif name not in known:
            names = ", ".join(sorted([*known, *_NESTED]))
            raise ValueError(f"storage_options has no {name!r} for a store of kind {kind!r}; known: {names}")
        else:
            section, _, target = known[name].rpartition(".")
            found[section or "other"][target] = _value(target, value)
    return found


def _value(name: str, value: Any) -> Any:
    if name in _SECONDS and isinstance(value, int | float):
        return timedelta(seconds=value)
    return value


# -- the client -----------------------------------------------------------------------------------


class Client:
    """A server, a place on it and how to ask; obstore's object for it is built on first use in each process."""

    __slots__ = ("kind", "place", "options", "_built")

    def __init__(self, kind: str, place: tuple[str, ...], options: Options) -> None:
        self.kind, self.place, self.options = kind, place, options
        self._built: dict[int, Any] = {}

    @classmethod
    def from_url(cls, url: str, storage_options: Mapping[str, Any] | None = None) -> Client:
        """The client of a URL, whose options are checked; nothing is asked of the server."""
        if url.partition("://")[0].lower() in ("http", "https"):
            return cls("http", (_checked_http(url),), parse_options("http", storage_options or {}))
        kind, bucket, path, account = split_url(url)
        options = parse_options(kind, storage_options or {})
        if account:
            options["config"].setdefault("account_name", account)
        return cls(kind, (bucket, path), options)

    @classmethod
    def from_obstore(cls, store: Any) -> Client:
        """The client that an object of obstore stands for; its stores in memory are used as they are."""
        name = type(store).__name__
        if name == "MemoryStore":
            client = cls("memory", (f"{id(store):x}",), {})
            client._built[os.getpid()] = store
            return client
        kind = {"S3Store": "s3", "GCSStore": "gs", "AzureStore": "az", "HTTPStore": "http"}.get(name)
        if kind is None:
            raise TypeError(f"{name} of obstore is not an object store; give a directory as a str or a pathlib.Path")
        options: Options = {"config": {}, "client": dict(store.client_options or {}), "retry": {}, "other": {}}
        options["retry"] = dict(store.retry_config or {})
        if kind == "http":
            return cls(kind, (_checked_http(store.url),), options)
        options["config"] = dict(store.config)
        bucket = options["config"].pop("container_name" if kind == "az" else "bucket")
        options["other"]["instance_credentials"] = True  # it asks as it was made
        if store.credential_provider is not None:
            options["other"]["credential_provider"] = store.credential_provider
        return cls(kind, (bucket, "/".join(part for part in str(store.prefix or "").split("/") if part)), options)

    @property
    def url(self) -> str:
        """Where it is, without secrets."""
        if self.kind == "http":
            return redacted(self.place[0])
        return f"{self.kind}://{'/'.join(part for part in self.place if part)}"

    @property
    def endpoint(self) -> str | None:
        """The server, where a user named one."""
        config = self.options.get("config", {})
        found = config.get("endpoint") or config.get("base_url")
        return None if found is None else redacted(str(found))

    @property
    def identity(self) -> tuple[str, ...]:
        """Equal for clients of the same values."""
        return (self.kind, self.endpoint or "", *self.place)

    def store(self) -> Any:
        """The object of obstore, built in this process."""
        pid = os.getpid()
        built = self._built.get(pid)
        if built is None:
            if self.kind == "memory" and self._built:
                raise RuntimeError(
                    "obstore's MemoryStore does not survive a fork; use zellige's, or start with 'spawn'"
                )
            # What another process built is kept: to free it here would disturb the threads that it belongs to.
            built = self._built[pid] = self._build()
        return built

    def _build(self) -> Any:
        stores = library().stores
        if self.kind == "memory":
            return stores.MemoryStore()
        how = {"client_options": self._client_options(), "retry_config": self._retry_config()}
        if self.kind == "http":
            return stores.HTTPStore(self.place[0], **how)
        bucket, path = self.place
        kwargs: dict[str, Any] = {**self.options["config"], **how, "prefix": path or None}
        kwargs |= credentials.find(self.kind, kwargs, self.options["other"])
        make = {"s3": stores.S3Store, "gs": stores.GCSStore, "az": stores.AzureStore}[self.kind]
        return make(bucket, **kwargs)

    def _client_options(self) -> dict[str, Any]:
        options = {"timeout": timedelta(seconds=config.get("remote.timeout")), **self.options["client"]}
        address = self.place[0] if self.kind == "http" else self.endpoint or credentials.endpoint(self.kind)
        if address.lower().startswith("http://"):
            options.setdefault("allow_http", True)  # asked for by name
        return options

    def _retry_config(self) -> dict[str, Any]:
        bounds = {
            "max_retries": config.get("remote.max_retries"),
            "retry_timeout": timedelta(seconds=config.get("remote.timeout")),
        }
        return {**bounds, **self.options["retry"]}

    # -- pickling ---------------------------------------------------------------------------------

    def _secrets(self) -> list[str]:
        """The names of options that hold credentials."""
        found = [name for part in self.options.values() for name in part if name in _SECRET]
        if self.kind == "http" and redacted(self.place[0]) != self.place[0]:
            found.append("the URL")
        return sorted(found)

    def __getstate__(self) -> tuple[str, tuple[str, ...], Options, dict[str, bytes] | None]:
        values = None
        if self.kind == "memory":  # as of our own: the pickle is a copy
            calls, store = library().calls, self.store()
            keys = [meta["path"] for batch in calls.list(store) for meta in batch]
            values = {key: bytes(calls.get(store, key).bytes()) for key in keys}
        elif secrets := self._secrets():
            warnings.warn(
                f"the pickle of {self.url} holds credentials ({', '.join(secrets)}); keep it safe, or leave them to "
                "the environment or a profile, which each process looks up for itself",
                CredentialsWarning,
                stacklevel=3,
            )
        return self.kind, self.place, self.options, values

    def __setstate__(self, state: tuple[str, tuple[str, ...], Options, dict[str, bytes] | None]) -> None:
        kind, place, options, values = state
        Client.__init__(self, kind, place, options)
        if values is not None:
            store = self.store()
            self.place = (f"{id(store):x}",)
            for key, value in values.items():
                library().calls.put(store, key, value)

    def __repr__(self) -> str:
        return f"Client({self.url!r})"


def _checked_http(url: str) -> str:
    if not urlsplit(url).hostname:
        raise ValueError(f"store {redacted(url)!r} names no host; write https://host/path")
    return url
