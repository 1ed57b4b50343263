"""How to reach a server: the user's options, checked, and a client of obstore that every process builds for itself.

Credentials stay here: no repr shows them, no error quotes them, and a pickle that holds them warns. Without credentials
obstore would query the instance metadata service. That is trusted in the cloud only; elsewhere the address may belong
to anyone, or a request waits for long. So it is queried only if the user asks for it.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from zellige.errors import CredentialsWarning
from zellige.settings import config
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
    """Return the functions, stores and errors of obstore for this process: one copy for all threads."""
    pid = os.getpid()
    found = _loaded.get(pid)
    if found is None:
        # A function takes only stores of its own copy, and several threads may come first.
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
    """Load another copy of an extension module, with its own global state.

    obstore runs its requests on threads that it starts once. A forked child has none of them, and would wait forever.
    The file is copied, because the system loads each file only once.
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


# -- secrets --------------------------------------------------------------------------------------

_userinfo = re.compile(r"(?<=://)[^/@\s]*@")
_query = re.compile(r"(?<=[?&;])([\w.~%-]+=)[^&\s\"'<>),]+")


def redacted(text: str) -> str:
    """Return a text without the users, passwords and query values of the URLs in it, which may be secret.

    >>> redacted("GET https://me:pass@host/x.zarr?sig=abc&v=1 failed")
    'GET https://***@host/x.zarr?sig=***&v=*** failed'
    """
    return _query.sub(r"\1***", _userinfo.sub("***@", text))


# -- kinds of servers -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """What differs between kinds of servers; several names in one text are separated by spaces."""

    store: str
    """The class of obstore."""
    schemes: str
    """The schemes of its URLs."""
    config: str = ""
    """Options that obstore has for this kind alone."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """What s3fs, boto3 and zellige call options."""
    other: str = ""
    """Options that are zellige's own."""
    company: str = ""
    """Whose credentials they are, in the error for missing ones."""
    offers: str = ""
    """The options that this error suggests."""
    credentials: str = ""
    """Options that are credentials, or say where some are."""
    environment: str = ""
    """Variables that are credentials, say where some are, or that none are needed."""
    file: str = ""
    """Where the user's credentials are by default."""


_S3 = (
    "access_key_id secret_access_key session_token region default_region checksum_algorithm conditional_put "
    "disable_tagging disable_bulk_delete metadata_endpoint imdsv1_fallback request_payer role_arn role_session_name "
    "s3_express server_side_encryption sse_bucket_key_enabled sse_customer_key_base64 sse_kms_key_id sts_endpoint "
    "unsigned_payload virtual_hosted_style_request web_identity_token_file copy_if_not_exists "
    "container_credentials_relative_uri container_credentials_full_uri container_authorization_token_file"
)
_UNSIGNED = {"anonymous": "skip_signature", "anon": "skip_signature"}
_KINDS = {
    "s3": _Kind(
        store="S3Store",
        schemes="s3 s3a",
        config=f"{_S3} endpoint skip_signature",
        aliases={
            **_UNSIGNED,
            **{f"aws_{name}": name for name in _S3.split()},
            "endpoint_url": "endpoint",
            "key": "access_key_id",
            "secret": "secret_access_key",
            "token": "session_token",
            "region_name": "region",
            "requester_pays": "request_payer",
        },
        other="instance_credentials profile",
        company="AWS",
        offers="key and secret, or profile",
        credentials="access_key_id web_identity_token_file container_credentials_relative_uri "
        "container_credentials_full_uri",
        environment="AWS_ACCESS_KEY_ID AWS_WEB_IDENTITY_TOKEN_FILE AWS_CONTAINER_CREDENTIALS_RELATIVE_URI "
        "AWS_CONTAINER_CREDENTIALS_FULL_URI AWS_SKIP_SIGNATURE",
    ),
    "gs": _Kind(
        store="GCSStore",
        schemes="gs gcs",
        config="service_account service_account_key application_credentials bearer_token base_url skip_signature",
        aliases={**_UNSIGNED, "endpoint": "base_url", "endpoint_url": "base_url", "token": "bearer_token"},
        other="instance_credentials",
        company="Google",
        offers="service_account or token",
        credentials="service_account service_account_key application_credentials bearer_token",
        environment="GOOGLE_SERVICE_ACCOUNT GOOGLE_SERVICE_ACCOUNT_PATH GOOGLE_SERVICE_ACCOUNT_KEY SERVICE_ACCOUNT "
        "GOOGLE_APPLICATION_CREDENTIALS GOOGLE_SKIP_SIGNATURE",
        file="~/.config/gcloud/application_default_credentials.json",
    ),
    "az": _Kind(
        store="AzureStore",
        schemes="az abfs abfss",
        config="account_name account_key client_id client_secret tenant_id authority_host sas_key token use_emulator "
        "use_fabric_endpoint encryption_key msi_endpoint object_id msi_resource_id federated_token_file use_azure_cli "
        "credential_type disable_tagging endpoint skip_signature",
        aliases={**_UNSIGNED, "endpoint_url": "endpoint", "sas_token": "sas_key"},
        other="instance_credentials",
        company="Azure",
        offers="account_key or sas_token",
        credentials="account_key sas_key token client_secret federated_token_file use_azure_cli use_emulator "
        "msi_endpoint",
        environment="AZURE_STORAGE_ACCOUNT_KEY AZURE_STORAGE_ACCESS_KEY AZURE_STORAGE_MASTER_KEY "
        "AZURE_STORAGE_SAS_KEY AZURE_STORAGE_SAS_TOKEN AZURE_STORAGE_TOKEN AZURE_STORAGE_CLIENT_SECRET "
        "AZURE_CLIENT_SECRET AZURE_FEDERATED_TOKEN_FILE AZURE_USE_AZURE_CLI AZURE_STORAGE_USE_EMULATOR "
        "AZURE_SKIP_SIGNATURE AZURE_MSI_ENDPOINT IDENTITY_ENDPOINT",
    ),
    "http": _Kind(store="HTTPStore", schemes="http https"),
}


# -- options --------------------------------------------------------------------------------------

_CLIENT = (
    "allow_http allow_invalid_certificates connect_timeout timeout read_timeout default_headers proxy_url "
    "proxy_excludes root_certificate user_agent pool_idle_timeout"
)
_NESTED = {"client_options": "client", "retry_config": "retry", "client_kwargs": None, "config_kwargs": None}
"""Options within options: obstore's own, and those that s3fs passes to boto3, which have the names above."""

_SECRET = (
    "access_key_id secret_access_key session_token sse_customer_key_base64 service_account_key bearer_token "
    "account_key client_secret sas_key token encryption_key default_headers proxy_url credential_provider"
)
_SECONDS = frozenset({"connect_timeout", "timeout", "read_timeout", "retry_timeout", "pool_idle_timeout"})

Options = dict[str, dict[str, Any]]


def parse_options(kind: str, given: Mapping[str, Any]) -> Options:
    """Sort options by any of their names into {"config": …, "client": …, "retry": …, "other": …} by obstore's names."""
    aliases = {"headers": "default_headers", **_KINDS[kind].aliases}
    sections = {
        **dict.fromkeys(_KINDS[kind].config.split(), "config"),
        **dict.fromkeys(_CLIENT.split(), "client"),
        **dict.fromkeys(("max_retries", "retry_timeout"), "retry"),
        **dict.fromkeys(_KINDS[kind].other.split(), "other"),
    }
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
            continue
        target = aliases.get(name, name)
        if target not in sections:
            names = ", ".join(sorted([*aliases, *sections, *_NESTED]))
            raise ValueError(f"storage_options has no {name!r} for a store of kind {kind!r}; known: {names}")
        seconds = target in _SECONDS and isinstance(value, int | float)
        found[sections[target]][target] = timedelta(seconds=value) if seconds else value
    return found


# -- credentials ----------------------------------------------------------------------------------


def _credentials(kind: str, options: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a store of obstore needs beside its options to sign requests; raise if there are no credentials."""
    if (provider := other.get("credential_provider")) is not None:
        return {"credential_provider": provider}
    own, profile = _KINDS[kind], other.get("profile")
    given = any(options.get(name) for name in ("skip_signature", *own.credentials.split()))
    if profile is None and (other.get("instance_credentials") or given):
        return {}
    around = any(map(os.environ.get, own.environment.split())) or os.path.exists(os.path.expanduser(own.file))
    if profile is None and not (kind == "s3" and os.environ.get("AWS_PROFILE")) and around:
        return {}
    if kind == "s3":
        found = _from_aws_files(profile, options)
        if found or os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "false":
            return found
    raise PermissionError(
        f"there are no {own.company} credentials in storage_options ({own.offers}), in the environment or in the "
        "user's files; give some, anonymous=True for public data, or instance_credentials=True on a machine in the "
        "cloud that has a role, so that its metadata service is asked"
    )


def _from_aws_files(profile: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a provider from the user's AWS files, with the region there; empty if they have no credentials."""
    try:
        import boto3
        import botocore.session
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        if profile is not None:
            raise ImportError(f"profile={profile!r} needs boto3; run: pip install boto3") from error
        return {}
    core = botocore.session.Session(profile=profile)
    core.get_component("credential_provider").remove("iam-role")  # which asks the metadata service
    session = boto3.Session(botocore_session=core)
    if session.get_credentials() is None:
        return {}
    region = {} if options.get("region") or not session.region_name else {"region": session.region_name}
    return {"credential_provider": Boto3CredentialProvider(session), **region}


# -- the client -----------------------------------------------------------------------------------


class Client:
    """A server, a place on it, and options; obstore's object for it is built on first use in each process."""

    __slots__ = ("kind", "place", "options", "_built")

    def __init__(self, kind: str, place: tuple[str, ...], options: Options) -> None:
        self.kind, self.place, self.options = kind, place, options
        self._built: dict[int, Any] = {}

    @classmethod
    def from_url(cls, url: str, storage_options: Mapping[str, Any] | None = None) -> Client:
        """Return the client of a URL with checked options; no request is sent.

        Nothing is decoded: an object store's key may hold any character, also `%`, `#` and `?`.
        """
        scheme, _, rest = url.partition("://")
        kind = next((kind for kind, own in _KINDS.items() if scheme.lower() in own.schemes.split()), None)
        if kind is None:
            known = ", ".join(" ".join(own.schemes for own in _KINDS.values()).split())
            raise ValueError(f"store {redacted(url)!r} is no URL of a server; begin it with one of: {known}")
        if kind == "http":
            return cls(kind, (_checked_http(url),), parse_options(kind, storage_options or {}))
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
        options = parse_options(kind, storage_options or {})
        if account:
            options["config"].setdefault("account_name", account)
        return cls(kind, (bucket, _without_empty_parts(path)), options)

    @classmethod
    def from_obstore(cls, store: Any) -> Client:
        """Return the client of a store of obstore; its stores in memory are used as they are."""
        name = type(store).__name__
        if name == "MemoryStore":
            client = cls("memory", (f"{id(store):x}",), {})
            client._built[os.getpid()] = store
            return client
        kind = next((kind for kind, own in _KINDS.items() if own.store == name), None)
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
        return cls(kind, (bucket, _without_empty_parts(str(store.prefix or ""))), options)

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
        """Return obstore's object, built in this process."""
        pid = os.getpid()
        built = self._built.get(pid)
        if built is None:
            if self.kind == "memory" and self._built:
                raise RuntimeError(
                    "obstore's MemoryStore does not survive a fork; use zellige's, or start with 'spawn'"
                )
            # What the parent built is kept: freeing it here would disturb its threads.
            built = self._built[pid] = self._build()
        return built

    def _build(self) -> Any:
        stores = library().stores
        if self.kind == "memory":
            return stores.MemoryStore()
        most = timedelta(seconds=config.get("remote.timeout"))
        client = {"timeout": most, **self.options["client"]}
        address = self._address()
        if address and not re.match(r"https?://[^/]", address, re.IGNORECASE):
            raise ValueError(f"endpoint {redacted(address)!r} is no URL; write http://host:port or https://host:port")
        if address.lower().startswith("http://"):
            client.setdefault("allow_http", True)  # the user chose it
        retries = {"max_retries": config.get("remote.max_retries"), "retry_timeout": most, **self.options["retry"]}
        how = {"client_options": client, "retry_config": retries}
        if self.kind == "http":
            return stores.HTTPStore(self.place[0], **how)
        bucket, path = self.place
        kwargs: dict[str, Any] = {**self.options["config"], **how, "prefix": path or None}
        kwargs |= _credentials(self.kind, kwargs, self.options["other"])
        return getattr(stores, _KINDS[self.kind].store)(bucket, **kwargs)

    def _address(self) -> str:
        """Return the server that a user or the environment names."""
        if self.kind == "http":
            return self.place[0]
        names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT") if self.kind == "s3" else ()
        return self.endpoint or next((os.environ[name] for name in names if os.environ.get(name)), "")

    # -- pickling ---------------------------------------------------------------------------------

    def _secrets(self) -> list[str]:
        """Return the names of options that hold credentials."""
        found = [name for part in self.options.values() for name in part if name in _SECRET.split()]
        if self.kind == "http" and redacted(self.place[0]) != self.place[0]:
            found.append("the URL")
        return sorted(found)

    def __getstate__(self) -> tuple[str, tuple[str, ...], Options, dict[str, bytes] | None]:
        values = None
        if self.kind == "memory":  # the pickle is a copy, as with `MemoryStore`
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


def _without_empty_parts(path: str) -> str:
    return "/".join(part for part in path.split("/") if part)
