from servers import s3, s3_process

__all__ = ["s3", "s3_process"]
