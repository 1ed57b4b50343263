"""Who asks an object store: options, the environment, the files of AWS, and the machine only if it is told to.

Without credentials obstore would turn to the metadata service of the machine. That answers in the cloud only; elsewhere
it may be anybody, or nobody, for a long while. So it is asked only by those who say so.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple


class _Signs(NamedTuple):
    """The options, environment variables and files by which obstore knows who asks, or that it need not say."""

    options: str
    environment: str
    files: str = ""


_SIGNS = {
    "s3": _Signs(
        "access_key_id web_identity_token_file container_credentials_relative_uri container_credentials_full_uri",
        "AWS_ACCESS_KEY_ID AWS_WEB_IDENTITY_TOKEN_FILE AWS_CONTAINER_CREDENTIALS_RELATIVE_URI "
        "AWS_CONTAINER_CREDENTIALS_FULL_URI AWS_SKIP_SIGNATURE",
    ),
    "gs": _Signs(
        "service_account service_account_key application_credentials bearer_token",
        "GOOGLE_SERVICE_ACCOUNT GOOGLE_SERVICE_ACCOUNT_PATH GOOGLE_SERVICE_ACCOUNT_KEY SERVICE_ACCOUNT "
        "GOOGLE_APPLICATION_CREDENTIALS GOOGLE_SKIP_SIGNATURE",
        "~/.config/gcloud/application_default_credentials.json",
    ),
    "az": _Signs(
        "account_key sas_key token client_secret federated_token_file use_azure_cli use_emulator msi_endpoint",
        "AZURE_STORAGE_ACCOUNT_KEY AZURE_STORAGE_ACCESS_KEY AZURE_STORAGE_MASTER_KEY AZURE_STORAGE_SAS_KEY "
        "AZURE_STORAGE_SAS_TOKEN AZURE_STORAGE_TOKEN AZURE_STORAGE_CLIENT_SECRET AZURE_CLIENT_SECRET "
        "AZURE_FEDERATED_TOKEN_FILE AZURE_USE_AZURE_CLI AZURE_STORAGE_USE_EMULATOR AZURE_SKIP_SIGNATURE "
        "AZURE_MSI_ENDPOINT IDENTITY_ENDPOINT",
    ),
}
_NAMES = {"s3": "AWS", "gs": "Google", "az": "Azure"}
_OFFERS = {"s3": "key and secret, or profile", "gs": "service_account or token", "az": "account_key or sas_token"}


def find(kind: str, options: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """What a store of obstore needs beside its options to know who asks; raises if nothing says so."""
    if (provider := other.get("credential_provider")) is not None:
        return {"credential_provider": provider}
    profile = other.get("profile")
    if profile is None and (other.get("instance_credentials") or _are_given(kind, options)):
        return {}
    if profile is None and not (kind == "s3" and os.environ.get("AWS_PROFILE")) and _are_around(kind):
        return {}
    if kind == "s3":
        found = _from_files(profile, options)
        if found or os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "false":
            return found
    raise PermissionError(
        f"there are no {_NAMES[kind]} credentials in storage_options ({_OFFERS[kind]}), in the environment or in the "
        "user's files; give some, anonymous=True for public data, or instance_credentials=True on a machine in the "
        "cloud that has a role, so that its metadata service is asked"
    )


def _are_given(kind: str, options: Mapping[str, Any]) -> bool:
    """Whether the options say who asks."""
    return any(options.get(name) for name in ("skip_signature", *_SIGNS[kind].options.split()))


def _are_around(kind: str) -> bool:
    """Whether the environment, or a file that obstore reads, says who asks."""
    _, names, files = _SIGNS[kind]
    return any(map(os.environ.get, names.split())) or any(map(os.path.exists, map(os.path.expanduser, files.split())))


def _from_files(profile: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """A provider from the user's AWS files, with the region there; empty if they have no credentials."""
    try:
        import boto3
        import botocore.session  # type: ignore[import-untyped]
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


def endpoint(kind: str) -> str:
    """The server that the environment names."""
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT") if kind == "s3" else ()
    return next((os.environ[name] for name in names if os.environ.get(name)), "")
