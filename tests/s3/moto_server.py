"""S3-compatible storage of moto that checks signatures: moto_server.py PORT FILE.

Makes a user who may do anything and the bucket "models"; writes AWS_* variables for a shell to FILE when it listens.
"""

import os
import sys
import time

import boto3
import requests
from moto.server import ThreadedMotoServer

port, file = int(sys.argv[1]), sys.argv[2]
ThreadedMotoServer(port=port, verbose=False).start()
endpoint = f"http://127.0.0.1:{port}"
options = dict(endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="first", aws_secret_access_key="first")
boto3.client("s3", **options).create_bucket(Bucket="models")
users = boto3.client("iam", **options)
users.create_user(UserName="run")
users.put_user_policy(
    UserName="run",
    PolicyName="all",
    PolicyDocument='{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}',
)
key = users.create_access_key(UserName="run")["AccessKey"]
# From now on every request must be signed by that user.
requests.post(endpoint + "/moto-api/reset-auth", data="0").raise_for_status()
with open(file + ".new", "w") as out:
    out.write(f"export AWS_ACCESS_KEY_ID='{key['AccessKeyId']}' AWS_SECRET_ACCESS_KEY='{key['SecretAccessKey']}'\n")
    out.write(f"export AWS_ENDPOINT_URL_S3={endpoint} AWS_REGION=us-east-1\n")
os.rename(file + ".new", file)
while True:
    time.sleep(3600)
